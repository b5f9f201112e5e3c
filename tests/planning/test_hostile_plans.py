"""Plans with hostile values or of 100,000 regions: refused in one line, or read in linear time."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from collectors.workloads.convolution_space import ConvUnit, unit_graph
from costmodel.errors import PlanError
from costmodel.planning.plan import Plan, Region
from tests.support.hostile_json import SETTINGS, mutated, refused_or

GRAPH = replace(unit_graph(ConvUnit(8, 16, 16, 14), "nchw", "nchw"), name="net")


PLAN = Plan(
    *("net", "0" * 64, "nvidia-h200", "exact", ("fold_batch_norm",), "graph"),
    (Region("inductor", ("0", "1"), ("a", "b"), 3.5, "fused"), Region("eager", ("2",), (), 1.0, stream=1)),
    *({"plan": 1.5}, 2.0, "2.13.0", False, 12),
)


@SETTINGS
@given(text=mutated(PLAN.to_dict()))
def test_a_plan_with_a_hostile_value_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, text: str):
    path = tmp_path_factory.getbasetemp() / "plan.json"
    path.write_text(text)
    plan = refused_or(lambda: Plan.load(path), PlanError)
    if plan is not None:
        assert all(0 <= us < math.inf for us in (*plan.latency_ms.values(), plan.build_s))
        assert all(0 <= region.us < math.inf and region.stream >= 0 and region.ops for region in plan.regions)
        assert json.loads(plan.to_json())["schema"] == 4


def test_a_plan_of_100_000_regions_takes_a_time_in_proportion(tmp_path: Path):
    # what is quadratic in these takes minutes: 10^10 comparisons of names
    names = tuple(f"layers.{number}" for number in range(100_000))
    region = PLAN.to_dict()["regions"][0]
    regions = [region | {"ops": [name], "layers": [name]} for name in names]
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.to_dict() | {"regions": regions}))
    loaded = Plan.load(tmp_path / "plan.json")
    assert [region.ops for region in loaded.regions] == [(name,) for name in names]
    with pytest.raises(PlanError, match=r"do not fit the model at operator 0;"):
        loaded.check_regions(GRAPH)
    repeated = tuple(Region("eager", (op.name,), (), 1.0) for op in GRAPH.ops) * 30_000
    with pytest.raises(PlanError, match=r"do not fit the model at operator 0;"):
        replace(PLAN, regions=repeated).check_regions(GRAPH)
