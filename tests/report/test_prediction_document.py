"""Parts of a prediction's document at the bounds where they change."""

from __future__ import annotations

import pytest

from costmodel.report import LayerPrediction, ModePrediction, Report
from costmodel.report.prediction_document import NOTABLE_SHARE, TOP_LAYERS, layer_rows, shown_layers, verdict

MODE = ModePrediction(4.0, 3.0, 5.0, 4.0, 1.0, 1.5, 0.9, 2.0)


def layer(name: str, eager_us: float | None, compiled_us: float | None, in_range: bool = True) -> LayerPrediction:
    return LayerPrediction(name, "relu", (), 0.5, eager_us, compiled_us, None, None, None, "inductor", in_range)


def report(**fields: object) -> Report:
    about = ("net", "some-gpu", 1, (1, 3, 8, 8), "float32", "nchw")
    return Report(*about, **({"modes": {}, "best_mode": "default", "verdict": "uncertain"} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "shown"), [(TOP_LAYERS, TOP_LAYERS), (TOP_LAYERS + 1, TOP_LAYERS)])
def test_at_most_fifteen_layers_are_shown_at_the_top(count: int, shown: int) -> None:
    assert TOP_LAYERS == 15
    found = report(layers=tuple(layer(str(i), 10.0 + i, 10.0) for i in range(count)))
    assert len(shown_layers(found, "top")) == shown
    assert len(layer_rows(found, "top")) == count  # a single other layer has a row in any case


def test_the_rest_is_summed_without_times_that_are_unknown() -> None:
    large = [layer(f"l{i}", 1000.0, 10.0) for i in range(TOP_LAYERS)]
    rest = [
        layer("a", 10.0, 8.0),
        layer("b", None, 2.0, in_range=False),
        layer("c", float("inf"), None, in_range=False),
    ]
    row = layer_rows(report(layers=(*rest, *large)), "top")[-1]
    assert row[:4] == ("the other 3 layers", "", 10.0, 10.0)
    assert row[4] == 1.0
    assert row[7] == "2 extrapolated"
    (*_, one) = layer_rows(report(layers=(layer("a", 10.0, 0.0), *large)), "top")
    assert one[:5] == ("the other layer", "", 10.0, 0.0, None)
    assert one[7] == ""


def test_a_loss_counts_like_a_gain_of_its_size() -> None:
    layers = [layer(f"l{i}", 10.0, 10.0) for i in range(TOP_LAYERS)]
    found = shown_layers(report(layers=(*layers, layer("gain", 10.0, 9.0), layer("loss", 9.0, 10.0))), "top")
    assert {"gain", "loss"} <= {item.name for item in found}
    assert len(found) == TOP_LAYERS


@pytest.mark.parametrize(("share", "is_named"), [(NOTABLE_SHARE - 0.01, False), (NOTABLE_SHARE, True)])
def test_extrapolated_time_is_named_from_a_tenth_on(share: float, is_named: bool) -> None:
    words = verdict(report(modes={"default": MODE}, extrapolated_share=share))
    assert ("of the device time is extrapolated" in words) is is_named
    assert words.startswith("uncertain: the 90 % prediction interval of the speedup contains 1")


def test_why_nothing_is_said_comes_by_its_weight() -> None:
    fields = {"modes": {"default": MODE}, "partial": True, "too_large": "does not fit in memory: needs 9 GiB"}
    assert verdict(report(**fields)).startswith(
        "uncertain: the model does not fit in memory: needs 9 GiB; every figure"
    )
    fields["too_large"] = ""
    assert verdict(report(**fields)).startswith("uncertain: only a part of the model was captured")
    assert verdict(report(verdict="leave")).startswith("leave: no mode of torch.compile")


def test_a_gain_names_its_interval_and_its_break_even_where_there_are_any() -> None:
    def gain(**fields: object) -> str:
        mode = ModePrediction(4.0, 3.0, 5.0, 4.0, 1.0, **({"speedup": 1.5} | fields))  # type: ignore[arg-type]
        return verdict(report(modes={"default": mode}, verdict="compile"))

    bounds: dict[str, object] = {"speedup_low": 1.25, "speedup_high": 2.0}
    paid: dict[str, object] = {"compile_s": 30.0, "break_even_calls": 1}
    assert gain() == "compile: default is fastest, 1.50x the speed of eager"
    assert gain(**bounds).startswith("compile: default is fastest, 1.50x the speed of eager (")
    assert gain(**bounds).endswith("1.25-2.00)")
    assert gain(**paid).endswith("the speed of eager; break-even after 1 call")
    every = {"compile_s_low": 20.0, "compile_s_high": 40.0, "break_even_low": 1}
    assert gain(**paid, **every).endswith("break-even after 1 call (1-never)")
    assert gain(**paid, **every, break_even_high=1200).endswith("break-even after 1 call (1-1,200)")
