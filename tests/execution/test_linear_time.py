"""Plans of n regions are read, checked and applied in time that grows as n, not as its square.

Times of one process are compared with each other, so a slow machine slows both. Bounds are generous: linear work takes
8 times as long, quadratic work 64 times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from costmodel.execution.regions import PlannedProgram
from costmodel.execution.snapshot import Snapshot
from costmodel.ir import Graph, Op, Ref, TensorType, Value
from costmodel.memory.checkpoint import checkpointed
from costmodel.memory.checkpoint_plan import KIND, CheckpointPlan, parse_plan
from costmodel.planning.plan import Plan, Region, fingerprint
from costmodel.planning.stream_assignment import barriers
from costmodel.rewrites.hoist_constants import hoist_constants

TYPE = TensorType("float32", (2, 4))
FACTOR, MOST = 8, 28


def chain(count: int) -> Graph:
    """A graph of operators, each of which reads the one before."""
    reads = [Ref("x"), *(Ref(str(index)) for index in range(count))]
    ops = tuple(Op(str(index), "relu", (("self", reads[index]),), (TYPE,)) for index in range(count))
    return Graph("g", (Value("x", TYPE),), ops, (reads[-1],))


def plan_of(count: int) -> Plan:
    regions = tuple(Region("eager", (str(index),), (f"m{index}",), 1.0) for index in range(count))
    graph = fingerprint(chain(count))
    return Plan("g", graph, "cpu", "exact", (), "stream", regions, {"plan": 1.0}, 0.0, "2.11")


def read_plan(count: int) -> Callable[[], object]:
    data = json.loads(plan_of(count).to_json())
    return lambda: Plan.from_dict(data)


def check_plan(count: int) -> Callable[[], object]:
    plan, graph = plan_of(count), chain(count)
    return lambda: plan.check(graph).check_regions(hoist_constants(graph).main)


def make_program(count: int) -> Callable[[], object]:
    regions, graph, x = plan_of(count).regions, chain(count), torch.randn(2, 4)
    return lambda: PlannedProgram(graph, regions, {}, {}).run([x])


def find_barriers(count: int) -> Callable[[], object]:
    after = [(), *((index,) for index in range(count - 1))]
    return lambda: barriers(after)


def read_checkpoint_plan(count: int) -> Callable[[], object]:
    names = [f"m{index}.{index % 7}" for index in range(count)]
    record = {"kind": KIND, "schema": 1, "model": "m", "stashed_before": 2, "stashed_after": 1, "added_us": 1.0}
    return lambda: parse_plan({**record, "modules": names})


def read_deep_checkpoint_plan(count: int) -> Callable[[], object]:
    record = {"kind": KIND, "schema": 1, "model": "m", "stashed_before": 2, "stashed_after": 1, "added_us": 1.0}
    return lambda: parse_plan({**record, "modules": [".".join("a" * count)]})


def apply_checkpoint_plan(count: int) -> Callable[[], object]:
    module = nn.Sequential(*[nn.ReLU() for _ in range(count)])
    plan = CheckpointPlan("m", tuple(map(str, range(count))), 2, 1, 1.0)
    return lambda: checkpointed(module, plan)


def compare_state(count: int) -> Callable[[], object]:
    module = nn.Sequential(*[nn.ReLU() for _ in range(count)])
    return lambda: Snapshot(module).has_changed()


def seconds(call: Callable[[], object]) -> float:
    """The least of three times of a call."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize(
    ("work", "count"),
    [
        (read_plan, 1000),
        (check_plan, 1000),
        (make_program, 150),
        (find_barriers, 2000),
        (read_checkpoint_plan, 1000),
        (read_deep_checkpoint_plan, 500),
        (apply_checkpoint_plan, 100),
        (compare_state, 300),
    ],
)
def test_time_grows_as_the_plan(work, count):
    work(count)()
    few, many = seconds(work(count)), seconds(work(FACTOR * count))
    assert many < MOST * max(few, 1e-3)


@pytest.mark.slow
def test_a_plan_of_100000_regions_is_checked():
    """Quadratic steps took minutes here."""
    count = 100_000
    plan, graph = plan_of(count), chain(count)
    assert plan.check(graph).check_regions(graph) is plan
    names = [f"m{index}" for index in range(count)]
    record = {"kind": KIND, "schema": 1, "model": "m", "stashed_before": 2, "stashed_after": 1, "added_us": 1.0}
    assert parse_plan({**record, "modules": names}).modules == tuple(names)
    assert len(barriers([(), *((index,) for index in range(count - 1))])) == count
