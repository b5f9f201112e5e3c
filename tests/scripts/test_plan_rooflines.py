"""Table of distances from the roofline: ratios and means by hand."""

from __future__ import annotations

import plan_rooflines as script


def rows(model: str, plan_ms: str) -> list[dict[str, str]]:
    return [
        {"model": model, "batch_size": batch, "precision": precision, "plan_ms": plan_ms, "roofline_ms": "0.5"}
        for batch, precision in script.KINDS
    ]


def test_the_table_by_hand():
    """2 / 0.5 and 8 / 0.5 predicted, whose geometric mean is 8; 3 / 0.5 measured, of one model in one kind."""
    measured = {("a", "1", "float16"): {"plan": 3.0, "eager": 9.0}}
    lines = script.markdown(rows("a", "2") + rows("b", "8"), measured).splitlines()
    assert lines[2:] == [
        "| a | 6.0 (4.0) | - (4.0) | - (4.0) | - (4.0) |",
        "| b | - (16.0) | - (16.0) | - (16.0) | - (16.0) |",
        "| *geometric mean* | 6.0 (8.0) | - (8.0) | - (8.0) | - (8.0) |",
    ]
