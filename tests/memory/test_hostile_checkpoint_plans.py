"""Checkpointing plans with hostile values, overlapping modules or 100,000 modules."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.errors import CheckpointPlanError
from costmodel.memory.checkpoint_plan import CheckpointPlan
from tests.support.hostile_json import HOSTILE, leaves, refused_or, text_with


def test_a_checkpointing_plan_with_a_hostile_value_is_refused_or_read(tmp_path: Path):
    good = json.loads(CheckpointPlan("net", ("a", "b.c"), 100, 60, 2.5).to_json())
    path = tmp_path / "plan.json"
    for place in leaves(good):
        for hostile in HOSTILE:
            path.write_text(text_with(good, place, hostile))
            plan = refused_or(lambda: CheckpointPlan.load(path), CheckpointPlanError)
            assert plan is None or (0 <= plan.added_us < math.inf and min(plan.stashed_before, plan.stashed_after) >= 0)


def test_a_module_beside_one_whose_name_it_begins_with_is_no_part_of_it(tmp_path: Path):
    plan = CheckpointPlan("net", ("layer", "layer1.a", "layer1.b", "layer10"), 1, 1, 1.0)
    plan.save(tmp_path / "plan.json")
    assert CheckpointPlan.load(tmp_path / "plan.json") == plan
    replace(plan, modules=("layer1.b.c", "layer", "layer1.b")).save(tmp_path / "plan.json")
    with pytest.raises(
        CheckpointPlanError, match=r"the module layer1\.b\.c is listed twice or is inside another listed module"
    ):
        CheckpointPlan.load(tmp_path / "plan.json")


def test_a_plan_of_100_000_modules_takes_a_time_in_proportion(tmp_path: Path):
    # what is quadratic in these takes minutes: 10^10 comparisons of names
    plan = CheckpointPlan("net", tuple(f"layers.{number}" for number in range(100_000)), 1, 1, 1.0)
    plan.save(tmp_path / "checkpoint.json")
    assert CheckpointPlan.load(tmp_path / "checkpoint.json") == plan
