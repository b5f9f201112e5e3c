"""Gains of plans: figures derived by hand, and docs/plans.md equal to the files."""

from __future__ import annotations

import json

from plan_tables import (
    best_mode,
    comparison_markdown,
    gain,
    latest,
    lines,
    moves_markdown,
    others_markdown,
)

from costmodel.planning.api import plan
from costmodel.zoo import load
from tests.support.scripts import load_script


def record(model: str, batch: int, **measured: float | None) -> dict:
    modes = {
        name.replace("_", "-"): {"measured_ms": ms, "predicted_ms": 1.0, "note": "" if ms else "it broke"}
        for name, ms in measured.items()
    }
    return {"case": [model, batch, "float32"], "device": "NVIDIA H200", "replaced": [], "modes": modes}


FAST = record("a", 1, eager=8.0, default=4.0, reduce_overhead=5.0, unforked=1.0, plan=2.0)
SLOW = record("b", 1, eager=1.0, default=4.0, reduce_overhead=2.0, plan=2.0)
BROKEN = record("c", 1, eager=1.0, default=4.0, reduce_overhead=2.0, plan=None)
FAILED = {"case": ["d", 32, "float16"], "error": "RuntimeError: it burnt"}


def test_the_fastest_mode_includes_eager():
    assert [best_mode(FAST), best_mode(SLOW)] == ["default", "eager"]
    assert [gain(FAST), gain(FAST, "unforked"), gain(SLOW), gain(BROKEN), gain(FAILED)] == [2.0, 4.0, 0.5, None, None]


def test_lines():
    *each, last = lines([FAST, SLOW, BROKEN, FAILED])
    assert last == "2 cases: geometric mean gain 1.000, least 0.500"
    assert each[0].endswith("plan 2.000 ms (1.000); gain over default 2.000")
    assert each[2:] == ["c@1 float32: it broke", "d@32 float16: RuntimeError: it burnt"]


def test_table():
    text = comparison_markdown([FAST, SLOW, BROKEN, FAILED])
    assert "2 cases:\ngeometric mean 1.00, least 0.50." in text
    assert "| a | 2.00 (1.00) |" in text
    assert "| `plan` | 50.0 % | 0 % |" in text


def test_cases_with_a_disturbed_host_are_named():
    text = comparison_markdown([FAST | {"host_speed": 0.69}, SLOW | {"host_speed": 0.7}, FAILED])
    assert "least 0.50. Without the 1 on a host that\nother processes slowed to less than 0.7" in text
    assert "of its speed, the mean is 0.50." in text


def test_plans_of_an_earlier_version_are_compared():
    faster = record("a", 1, eager=8.0, default=4.0, reduce_overhead=5.0, before=4.0, plan=2.0)
    slower = record("b", 1, eager=8.0, default=4.0, reduce_overhead=5.0, before=1.0, plan=2.0)
    text = comparison_markdown([faster, slower | {"case": ["c", 1, "float32"]}, SLOW])
    assert "plan of an earlier version was\nmeasured beside it: 1 are faster now, geometric mean 1.00." in text
    assert "earlier version" not in comparison_markdown([FAST, SLOW])


def test_the_plan_of_an_earlier_version_is_found_by_its_case(tmp_path):
    script = load_script("measure_and_compare")
    loaded = load("alexnet", batch_size=1)
    made = plan(loaded.module, loaded.inputs, hardware="nvidia-h200")
    rest = ("nvidia-h200", "cpu", (), (), tmp_path / "plans")
    cases = [script.PlannedCase("alexnet", batch, "float32", *rest, tmp_path) for batch in (1, 32)]
    made.save(tmp_path / "alexnet-1-float32-plan.json")
    assert [case.plan_before() for case in cases] == [{"before": made}, {}]
    assert script.PlannedCase("alexnet", 1, "float32", *rest).plan_before() == {}


def test_other_models():
    text = others_markdown([FAST, SLOW, BROKEN, FAILED]).splitlines()
    assert text[0] == "2 cases: geometric mean 1.00, least 0.50."
    assert text[2:] == ["| model | batch 1, float32 |", "| --- | --- |", *text[4:6], "| *geometric mean* | 1.00 |"]
    assert text[4:6] == ["| a | 2.00 (1.00) |", "| b | 0.50 (1.00) |"]


def test_the_last_measurement_of_a_case_counts_and_its_oracles_stay():
    studied = record("a", 1, eager=8.0, default=4.0, reduce_overhead=5.0, published=2.0, plan=2.0)
    again = record("a", 1, eager=8.0, default=4.0, reduce_overhead=5.0, plan=1.0)
    text = comparison_markdown([studied | {"theoretical_ms": 1.0}, SLOW, again])
    assert "2 cases:\ngeometric mean 1.41, least 0.50." in text
    assert "| a | 4.00 (1.00) |" in text
    assert "| batch 1, float32 | 1 | 2.00 (1.00) | (1.00) | 4.00 (1.00) | 4.00 (1.00) |" in text
    assert latest([studied, SLOW, again]) == [again, SLOW]


def test_gains_by_rewrites():
    two = record("a", 1, plan=2.0, unmerged=3.0)
    six = record("b", 1, plan=1.0, unmerged=6.0)
    two["modes"]["unmerged"]["predicted_ms"] = 1.25
    text = moves_markdown([two, six, BROKEN, FAILED]).splitlines()
    assert text[2:] == ["| a | 1.50 (1.25) |", "| b | 6.00 (1.00) |", "| *geometric mean* | 3.00 |"]


def test_a_case_with_another_plan_is_measured_again():
    script = load_script("measure_and_compare")
    loaded = load("resnet18", batch_size=1)
    made = plan(loaded.module, loaded.inputs, hardware="nvidia-h200", model_name="resnet18")
    planned = {"case": ["resnet18", 1, "float32"], **json.loads(json.dumps(script.made_of(made)))}
    assert not script.is_planned_differently(planned, "nvidia-h200")
    assert script.is_planned_differently(planned | {"streams": made.streams + 1}, "nvidia-h200")
    assert script.is_planned_differently({"case": planned["case"], "error": "it burnt"}, "nvidia-h200")
