"""Reports: the JSON's keys, and every format's text."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from html.parser import HTMLParser

import pytest

from costmodel.errors import RequestError
from costmodel.report import FORMATS, LayerPrediction, ModePrediction, Report, Unsupported, figures, render
from costmodel.report.prediction_document import LAYER_COLUMNS, layer_rows, shown_layers, verdict

NASTY = "<b>a|b</b>[red]"


def layer(name: str, eager_us: float = 20.0, compiled_us: float = 10.0, in_range: bool = True) -> LayerPrediction:
    return LayerPrediction(
        name=name,
        kind="conv2d",
        ops=("conv2d", "relu"),
        position=0.5,
        eager_us=eager_us,
        compiled_us=compiled_us,
        speedup=eager_us / compiled_us,
        speedup_low=1.5,
        speedup_high=2.5,
        backend="inductor",
        in_range=in_range,
    )


def report(**changes: object) -> Report:
    values: dict[str, object] = {
        "model": "tiny",
        "hardware": "some-gpu",
        "batch_size": 2,
        "input_shape": (2, 3, 8, 8),
        "precision": "float32",
        "layout": "nchw",
        "modes": {
            "eager": ModePrediction(6.0, 5.5, 6.5, 5.9, 2.0),
            "default": ModePrediction(4.0, 3.8, 4.2, 3.9, 1.5, 1.5, 1.4, 1.6, 30.0, 15000),
        },
        "best_mode": "default",
        "verdict": "compile",
        "layers": (layer("conv1"), layer("conv2", in_range=False)),
        "unsupported": (Unsupported("aten.foo", "head.act"),),
        "warnings": ("a warning",),
    }
    return Report(**(values | changes))  # type: ignore[arg-type]


class TestToDict:
    def test_has_exactly_the_documented_keys(self) -> None:
        record = report().to_dict()
        assert list(record) == [
            *(
                "$schema",
                "schema",
                "pass",
                "model",
                "hardware",
                "host",
                "host_speed",
                "host_calibrated",
                "assumed_host",
            ),
            *("batch_size", "input_shape", "precision", "layout", "parameters", "flops", "peak_memory_bytes", "modes"),
            *("best_mode", "verdict", "leaning", "extrapolated_share"),
            *("layers", "unsupported", "warnings", "partial", "too_large", "graphs"),
        ]
        times = ["latency_ms", "low_ms", "high_ms", "host_ms", "device_ms"]
        achieved = ["roofline_ms", "images_per_s", "tflops"]
        against = [
            *("speedup", "speedup_low", "speedup_high", "compile_s", "compile_s_low", "compile_s_high"),
            *("compile_warm_s", "compile_warm_s_low", "compile_warm_s_high"),
            *("break_even_calls", "break_even_low", "break_even_high"),
        ]
        assert list(record["modes"]["eager"]) == times + achieved
        assert list(record["modes"]["default"]) == times + against + achieved
        assert list(record["layers"][0]) == [
            *("name", "kind", "ops", "position", "eager_us", "compiled_us"),
            *("speedup", "speedup_low", "speedup_high", "backend", "in_range", "extrapolated_share"),
            *("shape", "module_type", "flops", "bound", "reason", "modules"),
        ]
        assert record["graphs"] == {"count": None, "checked": False, "breaks": [], "skipped": [], "error": ""}
        assert record["schema"] == 1
        assert record["unsupported"] == [{"op": "aten.foo", "where": "head.act"}]

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
    def test_a_number_is_finite_or_null(self, value: float | None) -> None:
        mode = ModePrediction(1.0, 1.0, 1.0, 1.0, 1.0, speedup=value)
        assert report(modes={"default": mode}).to_dict()["modes"]["default"]["speedup"] is None

    def test_survives_json(self) -> None:
        assert json.loads(render(report(), "json")) == report().to_dict()

    def test_one_report_is_an_object_and_several_are_a_list(self) -> None:
        assert isinstance(json.loads(render(report(), "json")), dict)
        assert json.loads(render([report()], "json")) == [report().to_dict()]


@pytest.mark.parametrize("reports", [[report(), 1, "two"], (1, "two"), 1])
def test_of_odd_reports_the_first_is_named(reports: object) -> None:
    with pytest.raises(RequestError, match=r"^reports must be a Report or a sequence of them, not 1$"):
        render(reports)


def test_frame_has_a_row_a_layer() -> None:
    frame = report().to_frame()
    assert list(frame["name"]) == ["conv1", "conv2"]
    assert frame["eager_us"].sum() == 40.0  # 20 + 20
    assert list(report(layers=()).to_frame().columns) == list(frame.columns)


def test_prints_itself_as_the_plain_table() -> None:
    text = str(report())
    assert text == render(report(), "table", width=100).rstrip("\n")
    assert "\x1b" not in text
    assert text.isascii()


class TestTable:
    def test_says_the_answer_then_modes_then_modules_then_warnings(self) -> None:
        text = render(report(), "table")
        marks = ["compile: default is fastest", "model = torch.compile(model)\n", "tiny on some-gpu", "5.500-6.500"]
        marks += ["conv1", "aten.foo in head.act"]
        places = [text.index(mark) for mark in [*marks, "1 of 2 layers", "warning: a warning"]]
        assert places == sorted(places)
        assert "15,000 calls" in text

    @pytest.mark.parametrize("width", [30, 40, 80, 120, None])
    def test_no_figure_is_cut_short_by_a_narrow_terminal(self, width: int | None) -> None:
        text = " ".join(render(report(), "table", width=width).split())
        assert all(figure in text for figure in ("6.000", "1.50x", "1.40-1.60", "15,000 calls", "40.0", "2.00x"))
        assert ("5.500-6.500" in text) == (width is None or width >= 80)

    def test_names_are_not_markup(self) -> None:
        assert NASTY in render(report(model=NASTY), "table")

    def test_colours_only_on_demand(self) -> None:
        assert "\x1b[" in render(report(), "table", color=True)


class TestLayers:
    def test_top_shows_those_whose_time_changes_most_in_execution_order(self) -> None:
        # layer i saves i us: of 20 layers, the top 15 are 5 .. 19, and the other five take 5 x 100 us in eager
        layers = tuple(layer(f"l{index}", 100.0, 100.0 - index) for index in range(20))
        shown = layer_rows(report(layers=layers), "top")
        assert [row[0] for row in shown] == [*(f"l{index}" for index in range(5, 20)), "the other 5 layers"]
        assert shown[-1][2:5] == (500.0, 490.0, 500 / 490)  # 490 = 500 - (0+1+2+3+4)

    def test_a_loss_counts_as_a_change(self) -> None:
        layers = (*(layer(f"l{index}", 10.0, 9.0) for index in range(20)), layer("slow", 10.0, 30.0))
        assert "slow" in {item.name for item in shown_layers(report(layers=layers), "top")}

    @pytest.mark.parametrize(("choice", "count"), [("all", 20), ("none", 0)])
    def test_all_and_none(self, choice: str, count: int) -> None:
        layers = tuple(layer(f"l{index}") for index in range(20))
        assert len(layer_rows(report(layers=layers), choice)) == count


class TestCsv:
    def test_has_a_row_a_mode(self) -> None:
        lines = list(csv.DictReader(io.StringIO(render([report(), report(model="a,b")], "csv"))))
        assert [(line["model"], line["mode"]) for line in lines] == [
            *(("tiny", "eager"), ("tiny", "default"), ("a,b", "eager"), ("a,b", "default")),
        ]
        assert lines[1]["speedup"] == "1.5"
        assert lines[0]["speedup"] == ""
        assert lines[0]["input_shape"] == "2x3x8x8"

    def test_has_a_row_a_layer_on_demand(self) -> None:
        lines = list(csv.DictReader(io.StringIO(render(report(), "csv", layers="all"))))
        assert [(line["name"], line["ops"]) for line in lines] == [("conv1", "conv2d relu"), ("conv2", "conv2d relu")]


def test_markdown_cells_keep_their_columns_whatever_they_hold() -> None:
    text = render(report(layers=(layer(NASTY),)), "md")
    cells = next(line for line in text.splitlines() if "red" in line).replace("\\|", "").split("|")
    assert len(cells) == len(LAYER_COLUMNS) + 2  # a bar before the first cell and after the last
    assert "<b>" not in text.replace("\\<b\\>", "")


def test_html_is_escaped_and_needs_nothing_else() -> None:
    class Tags(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.seen.append(tag)
            links = [value for name, value in attrs if name in ("src", "href")]
            assert all(str(link).startswith("#") for link in links)

    text = render(report(model=NASTY, layers=(layer(NASTY),), warnings=("<script>",)), "html")
    parser = Tags()
    parser.feed(text)
    assert not {"link", "img", "iframe", "object"} & set(parser.seen)
    assert parser.seen.count("script") == 2  # the page's own and its data
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_survives_an_empty_prediction(name: str) -> None:
    empty = report(modes={}, layers=(), unsupported=(), warnings=(), verdict="uncertain", best_mode="")
    assert render(empty, name).endswith("\n")


@pytest.mark.parametrize(("options", "part"), [({"format": "xml"}, "table"), ({"layers": "some"}, "top")])
def test_an_unknown_choice_lists_the_known_ones(options: dict[str, str], part: str) -> None:
    with pytest.raises(RequestError, match=part):
        render(report(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"verdict": "leave", "best_mode": "eager"}, "leave: "),
        (
            {
                "verdict": "uncertain",
                "leaning": "compile",
                "modes": {"default": ModePrediction(4, 3, 5, 4, 1, 1.5, 0.9, 2)},
            },
            "uncertain, more likely compile: the 90 % prediction interval of the speedup contains 1; best guess",
        ),
        (
            {"verdict": "uncertain", "leaning": "leave", "extrapolated_share": 0.25},
            "uncertain, more likely leave: the 90 % prediction interval of the speedup contains 1, and 25% of",
        ),
        ({"verdict": "uncertain", "partial": True}, "uncertain: only a part of the model was captured"),
        ({"verdict": "compile"}, "compile: default is fastest, 1.50x"),
    ],
)
def test_verdict_in_words(changes: dict[str, object], start: str) -> None:
    assert verdict(report(**changes)).startswith(start)


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.123"), (9.8765, "9.877"), (12.345, "12.35"), (123.45, "123.5"), (None, "-")]
)
def test_milliseconds_keep_about_four_figures(value: float | None, text: str) -> None:
    # 12.345 is stored as 12.3450000000000006, which rounds up
    assert figures.milliseconds(value) == text
