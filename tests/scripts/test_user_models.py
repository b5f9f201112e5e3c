"""Tables of user models and of machines left out, from small frames by hand."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from tests.support.scripts import load_script


@pytest.fixture(scope="module")
def compare() -> ModuleType:
    return load_script("compare_user_models")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return load_script("user_model_tables")


def row(model: str, mode: str, measured: float, low: float, high: float, **other: Any) -> dict[str, Any]:
    """A row of a case; latencies lie in their intervals unless given."""
    times = {"measured_eager_us": 10.0, "eager_low_us": 9.0, "eager_high_us": 11.0}
    times |= {"measured_us": 5.0, "mode_low_us": 4.0, "mode_high_us": 6.0, "speedup": (low + high) / 2}
    about = {"model": model, "batch_size": 1, "mode": mode, "half": "reporting", "one_graph": True, "graphs": 1}
    verdict = {"verdict": "compile", "leaning": "compile", "right": True}
    return about | times | verdict | {"measured_speedup": measured, "speedup_low": low, "speedup_high": high} | other


def test_a_half_is_of_a_family(compare: ModuleType):
    assert compare.half_of("resnet18") == compare.half_of("timm:deit_tiny") == "library"
    base = "scripts/user_models/"
    assert compare.half_of(f"{base}segmentation.py:unet") == compare.half_of(f"{base}segmentation.py:unet_bilinear")
    assert compare.half_of(f"{base}python_in_forward.py:prints") == compare.half_of(f"{base}stateful.py:hooks")
    names = [f"{base}imaging.py:{letter}" for letter in "abcdefghijklmnopqrst"]
    assert {compare.half_of(name) for name in names} == {"tuning", "reporting"}


def test_the_quietest_round_counts(compare: ModuleType):
    assert compare.quiet_median_us([[9.0, 10.0, 50.0], [30.0, 31.0, 32.0]]) == 10.0


@pytest.mark.parametrize(
    ("verdict", "best", "speedups", "right"),
    [
        ("compile", "default", {"default": 1.2, "reduce-overhead": 0.9}, True),
        ("compile", "reduce-overhead", {"default": 1.2, "reduce-overhead": 0.9}, False),
        ("compile", "max-autotune", {"default": 1.2}, True),  # not measured: any mode that is faster
        ("leave", "eager", {"default": 0.8, "reduce-overhead": 0.9}, True),
        ("leave", "eager", {"default": 0.8, "reduce-overhead": 1.1}, False),
        ("uncertain", "default", {"default": 1.2}, None),
    ],
)
def test_what_bears_a_verdict_out(
    compare: ModuleType, verdict: str, best: str, speedups: dict[str, float], right: bool | None
):
    report = type("Report", (), {"verdict": verdict, "best_mode": best})
    assert compare.is_right(report, {mode: {"measured_speedup": one} for mode, one in speedups.items()}) is right


def test_a_summary_by_hand(tables: ModuleType):
    """Two cases: one right in both modes; one uncertain, outside its interval, and faster than it leans."""
    unsure = {"verdict": "uncertain", "leaning": "leave", "right": None}
    rows = [
        row("a", "default", 1.5, 1.2, 1.6),
        row("a", "reduce-overhead", 2.0, 1.9, 2.5, measured_us=7.0),
        row("b", "default", 1.4, 0.7, 1.3, **unsure),
    ]
    text = tables.summary_table(pd.DataFrame(rows)).splitlines()
    expected = "2 models, 2 | 1: 50 % | 100 % of 1 | 50 % of 2 | 67 % of 3 | 80 % of 5 |"
    assert f"| reporting half, one graph | {expected}" in text
    assert not any("graph breaks" in line for line in text)


def test_a_row_a_case(tables: ModuleType):
    unknown = dict.fromkeys(("speedup", "speedup_low", "speedup_high", "verdict", "right"))
    frame = pd.DataFrame([row("b", "default", 1.5, 1.2, 1.6), row("a", "default", 0.7, 1.0, 1.0) | unknown])
    assert tables.case_table(frame).splitlines()[2:] == [
        "| a | 1 | `default` | 1 | 0.70 | - |  |  |  |",
        "| b | 1 | `default` | 1 | 1.50 | 1.40 | 1.20-1.60 | compile | right |",
    ]


def test_machines_by_launch_time_and_each_counting_once():
    hosts = load_script("hosts")
    shares = {("slow", 1): 0.5, ("slow", 32): 0.6, ("fast", 1): 1.0}
    rows = [
        {"machine": machine, "launch_us": 9.0 if machine == "slow" else 5.0, "quantity": quantity, "mode": mode}
        | {"batch_size": batch_size, "cases": 10, "inside": share}
        for (machine, batch_size), share in shares.items()
        for quantity, mode in hosts.QUANTITIES
    ]
    lines = hosts.table(pd.DataFrame(rows)).splitlines()[2:]
    assert [line[:24] for line in lines[:2]] == ["| 1 | 5.0 | 100 %; - | 1", "| 2 | 9.0 | 50 %; 60 % |"]
    assert lines[2].startswith("| all, each counting once |  | 75 %; 60 % |")
