"""Passes on a CPU, by hand, and costs that are found again in times made of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from collectors.workloads.matmuls import linear_graph
from costmodel.calibration.host_costs import CalibrationCase, fit_tables
from costmodel.ir import Calls, parse
from costmodel.kernels.kernel import Kernel
from costmodel.timeline import gpu, queue, timed_trace
from costmodel.timeline.cpu import BETWEEN, kernel_counts
from costmodel.timeline.issue_trace import IssueTrace

RELU = parse("graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n  return %0\n}")
CALL, LOOP = Kernel("aten", RELU, ("0",)), Kernel("triton", RELU, ("0",))
PRODUCT = Kernel("aten", linear_graph(4, 8, 8, "float32", bias=False), ("0",))
FACTORS = {"convolution": 1.5, "matmul": 1.2, "fused": 0.8, "other": 1.0}
COSTS = {
    "eager_serial": {**FACTORS, "loop": -1.0, "call": 3.0, "view": 0.5, "module": 0.25, "start": 20.0},
    "default_serial": {**FACTORS, "loop": -1.0, "call": 2.0, "parameter": 0.1, "module": 0.5, "start": 30.0},
}


def timed(of: IssueTrace, us: Sequence[float]) -> timed_trace.TimedTrace:
    """Its kernels' times; what the host takes is in them."""
    return timed_trace.TimedTrace(of, us, [0.0] * len(us))


def program(*kernels: Kernel, views: int = 0, modules: int = 0) -> IssueTrace:
    return IssueTrace(
        kernels, (0.5,) * len(kernels), views, Calls(modules), parameters=10, footprint=0, checked_modules=6
    )


def test_a_pass_is_the_sum_of_its_kernels_and_of_what_lies_between():
    eager, compiled = program(CALL, PRODUCT, CALL, views=4, modules=8), program(LOOP, LOOP, PRODUCT, LOOP)
    found = gpu.timings(timed(eager, [5.0, 10.0, 7.0]), timed(compiled, [4.0, 6.0, 10.0, 2.0]), COSTS)
    assert set(found) == {"eager", "default"}  # no CUDA graphs
    # kernels 5 + 1.2 x 10 + 7; between them 3 calls x 3, 4 views x 0.5, 8 modules x 0.25, and the start
    assert found["eager"] == queue.Timing(24.0 + 33.0, 33.0, 24.0)
    # kernels 0.8 x 12 + 1.2 x 10, 3 loops x -1; 3 functions x 2 (two loops in a row are one), 10 parameters x 0.1,
    # 6 modules x 0.5
    assert found["default"] == queue.Timing(pytest.approx(18.6 + 40.0), 40.0, pytest.approx(18.6))


def test_factors_and_costs_are_found_again():
    rng = random.Random(3)
    cases = []
    for _ in range(60):
        compiled = program(*rng.choices((LOOP, PRODUCT, CALL), k=rng.randint(30, 90)))
        issued = timed(compiled, [rng.uniform(20.0, 400.0) for _ in compiled.kernels])
        wall = gpu.serial_timing(issued, "default_serial", COSTS).latency_us
        cases.append(CalibrationCase(issued, issued, {"default_us": wall}))
    found = fit_tables(cases, on_cpu=True)["default_serial"]
    assert found["matmul"] == pytest.approx(1.2, rel=0.05)
    assert found["fused"] == pytest.approx(0.8, rel=0.05)
    for case in cases:
        again = gpu.serial_timing(case.compiled, "default_serial", {"default_serial": found})
        assert again.latency_us == pytest.approx(case.measured["default_us"], rel=0.02)


def test_every_amount_has_a_cost():
    for name, costs in COSTS.items():
        made = kernel_counts(program(CALL), [1.0]) | BETWEEN[name](program(CALL))
        assert made.keys() == costs.keys()


def test_a_pass_that_dynamo_gives_up_runs_eagerly_in_both_modes():
    given_up = replace(program(LOOP), subgraphs=0)
    eager = timed(program(CALL, views=1), [5.0])
    found = gpu.timings(eager, timed(given_up, [4.0]), COSTS)
    assert found["default"] == found["eager"] == gpu.serial_timing(eager, "eager_serial", COSTS)


def test_time_between_kernels_is_never_less_than_none():
    costs = {"eager_serial": COSTS["eager_serial"] | {"start": -100.0}}
    assert gpu.serial_timing(timed(program(CALL), [5.0]), "eager_serial", costs) == queue.Timing(5.0, 0.0, 5.0)


def test_loops_in_a_row_are_one_call():
    """Rows of two, one and three loops, and two library calls."""
    row = program(LOOP, LOOP, PRODUCT, LOOP, CALL, LOOP, LOOP, LOOP)
    assert BETWEEN["default_serial"](row) == {"call": 5, "parameter": 10, "module": 6, "start": 1}
    assert BETWEEN["eager_serial"](row)["call"] == 8
    assert kernel_counts(row, [1.0] * 8) == {"convolution": 0, "matmul": 1, "fused": 6, "other": 1, "loop": 6}
