"""Data of pages: modes, trust, drawings, charts and summaries, by hand."""

from __future__ import annotations

from dataclasses import replace

from costmodel.report import GraphBreak, Unsupported
from costmodel.report.page import MOST_DRAWN, NO_FACTS, Ceilings, PageFacts
from costmodel.report.page.charts import chart_data
from costmodel.report.page.data import case_data
from costmodel.report.page.summary import summary_of
from tests.support.page_reports import SMALL, facts, with_layers
from tests.support.sample_reports import report, with_breaks


def test_modes_are_bars_on_a_scale_of_the_longest_interval() -> None:
    modes = {row.name: row for row in case_data(report(), 0, NO_FACTS).modes}
    assert [row.name for row in modes.values() if row.is_best] == ["reduce-overhead"]
    eager, graphs = modes["eager"].latency_bar, modes["reduce-overhead"].latency_bar
    assert (eager.at, eager.low, eager.high) == (92.31, 84.62, 100.0)  # 6, 5.5 and 6.5 of 6.5 ms
    assert (graphs.at, graphs.low, graphs.high) == (30.77, 27.69, 33.85)  # 2, 1.8 and 2.2
    assert (modes["eager"].speedup, modes["eager"].compile, modes["eager"].break_even) == ("1×", "", "")
    assert modes["default"].break_even_interval == "9,800–23,000"
    assert modes["reduce-overhead"].break_even_interval == "5,500–never"


def test_trust_says_what_is_assumed_extrapolated_and_not_ruled() -> None:
    assumed = replace(report(), assumed_host="an undisturbed machine", extrapolated_share=0.25)
    host, share, operator = case_data(assumed, 0, NO_FACTS).trust
    assert host == "Host: an undisturbed machine. --host calibrates."
    assert share.startswith("Extrapolated: 25% of the device time, in 1 of 2 layers.")
    assert operator == "Operator without a cost rule: my::op in head.act."
    sure = with_layers(SMALL, unsupported=(Unsupported("my::op", ""),))
    assert case_data(sure, 0, NO_FACTS).trust == (
        "Extrapolated: nothing. Every kernel is close to measured ones.",
        "Operator without a cost rule: my::op in tiny.",
    )


def test_breaks_and_the_profile_of_the_hardware() -> None:
    found = case_data(with_breaks(), 0, facts())
    assert found.breaks[0] == GraphBreak("net.py:12", "print()")
    assert found.graphs == "3 graphs"
    assert [table.title for table in found.accuracy] == ["accuracy on held-out models"]
    assert case_data(replace(report(), hardware="other"), 0, facts()).accuracy == []


def test_a_drawing_is_left_out_where_there_are_too_many_layers() -> None:
    assert case_data(with_layers(SMALL), 0, facts("<svg/>")).drawing == "<svg/>"
    assert case_data(with_layers(SMALL), 1, facts("<svg/>")).drawing == ""
    many = with_layers({f"conv{index}": (2.0, 1.0) for index in range(MOST_DRAWN + 1)})
    found = case_data(many, 0, PageFacts())
    assert found.drawing_note == "A drawing of 1,001 layers is too large for this page, which draws up to 1,000."


def test_without_layers_there_are_neither_charts_nor_a_drawing() -> None:
    found = case_data(with_layers(SMALL), 0, facts("<svg/>"), layers="none")
    assert (found.script, found.drawing, found.drawing_note, found.has_kernels) == ({}, "", "", False)
    assert case_data(with_layers(SMALL), 0, NO_FACTS).has_kernels
    assert not case_data(report(), 0, NO_FACTS).has_kernels


def test_charts_hold_kernels_with_the_rows_of_their_layers() -> None:
    made = chart_data(with_layers(SMALL), Ceilings(4e6, {"conv.float32": 3e8, "conv.float16": 6e8}))
    assert made["ceilings"] == {"bytes": 4_000_000, "peaks": [{"name": "conv.float32", "peak": 300_000_000}]}
    eager = made["kernels"]["eager"]
    rows = [made["words"][made["tree"]["name"][row]] for row in eager["node"]]
    assert rows == [made["words"][layer] for layer in eager["layer"]] == list(SMALL)
    assert eager["device"] == [30, 20, 40, 8, 12]
    assert eager["start"][:2] == [10, 45]  # 5 + 5 to launch; 30 us later, 5 more
    assert made["collapsed"] == {}
    assert chart_data(with_layers(SMALL), None)["ceilings"] is None


def test_a_summary_ranks_cases_and_says_what_they_share() -> None:
    slow = with_layers(SMALL, model="slow", best_mode="default", hardware="other-gpu")
    fast = with_layers(SMALL, model="fast")
    reports = [slow, fast]
    found = summary_of(reports, [case_data(one, index, NO_FACTS) for index, one in enumerate(reports)])
    assert found.shared == (("input", "2×3×8×8"), ("precision", "float32"), ("layout", "nchw"))
    assert found.differing == ("hardware",)
    ranked = [(row.case.id, row.facts, row.eager_ms, row.best_ms) for row in found.rows]
    assert ranked == [("c1", ("some-gpu",), "6.000", "2.000"), ("c0", ("other-gpu",), "6.000", "4.000")]
    assert found.rows[0].bar.high == 100.0  # 3.25, the end of the shared axis
    assert found.rows[0].bar.one == found.rows[1].bar.one
