"""Costs from whole models: known ones are recovered, one odd model does no harm, and no model at all is no error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collectors.conv import ConvUnit, unit_graph
from collectors.matmul import linear_graph
from costmodel import timeline
from costmodel.calibrate import (
    COSTS,
    CPU_COSTS,
    PRIORS,
    Case,
    fit_compile,
    fit_dispatch,
    fit_tables,
    quantile_interval,
    ridge,
)
from costmodel.errors import DatasetError
from costmodel.ir import parse
from costmodel.kernels import Kernel, eager_kernels
from costmodel.program import Program

RNG = np.random.default_rng(0)
TRUE = {"launch": 12.0, "view": 3.0, "start": 80.0}
PRIOR = {"launch": 9.0, "view": 2.0, "start": 60.0}
ROWS = [{"launch": float(n), "view": float(v), "start": 1.0} for n, v in RNG.integers(1, 200, (40, 2))]
TIMES = [sum(count * TRUE[name] for name, count in row.items()) for row in ROWS]
RELU = parse("graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n  return %0\n}")


def test_known_costs_are_recovered():
    found = ridge(ROWS, TIMES, PRIOR, strength=1e-6)
    assert found == pytest.approx(TRUE, rel=1e-3)


def test_one_model_with_a_quirk_does_not_spoil_the_rest():
    odd = [us * (4 if index == 7 else 1) for index, us in enumerate(TIMES)]
    found = ridge(ROWS, odd, PRIOR, strength=1e-6)
    assert found == pytest.approx(TRUE, rel=0.05)


def test_what_the_models_cannot_tell_stays_at_its_prior():
    rows = [{**row, "rare": 0.0} for row in ROWS]
    found = ridge(rows, TIMES, {**PRIOR, "rare": 70.0}, strength=0.1)
    assert found["rare"] == pytest.approx(70.0)


def test_without_a_model_costs_are_their_priors():
    assert ridge([], [], PRIOR, strength=0.1) == pytest.approx(PRIOR)


def test_dispatch_times_are_medians_by_class_and_coarser_class():
    unit = ConvUnit(1, 8, 8, 6, kernel=3, padding=1)
    plain = eager_kernels(unit_graph(unit, "nchw", "nchw"))[0]
    last = eager_kernels(unit_graph(unit, "nhwc", "nhwc"))[0]
    linear = Kernel("aten", linear_graph(4, 8, 8, "float32", bias=True), ())
    kernels = [plain] * 5 + [last] * 5 + [linear] * 4
    times = [1.0, 2.0, 3.0, 4.0, 100.0] + [11.0, 12.0, 13.0, 14.0, 15.0] + [50.0] * 4
    table = fit_dispatch(kernels, times)
    assert table == {
        "conv": 11.5,  # of the ten convolutions: between 11 and 12
        "conv.nchw": 3.0,
        "conv.nchw.spatial": 3.0,
        "conv.nchw.spatial.32": 3.0,
        "conv.nchw.spatial.32.c3": 3.0,
        "conv.nchw.spatial.32.c3.m7": 3.0,  # 288 results of 72 products each lie between 4^7 and 4^8
        "conv.nhwc": 13.0,
        "conv.nhwc.spatial": 13.0,
        "conv.nhwc.spatial.32": 13.0,
        "conv.nhwc.spatial.32.c3": 13.0,
        "conv.nhwc.spatial.32.c3.m7": 13.0,
        "other": 13.5,  # of all fourteen: between 13 and 14; four linear layers are too few for a class
    }


def test_calls_without_a_host_time_are_left_out():
    kernels = [Kernel("aten", RELU, ("0",))] * 6
    assert fit_dispatch(kernels, [2.0, math.nan, 2.0, 2.0, 2.0, 2.0])["relu"] == 2.0
    with pytest.raises(DatasetError, match="no unit has a host time"):
        fit_dispatch(kernels[:1], [math.nan])


@pytest.mark.parametrize(
    ("errors", "coverage", "width"),
    [
        (np.arange(1, 20) / 100, 0.9, 0.18),  # rank ceil(20 x 0.9) = 18 of 19, counted from the quantile's ends
        (np.array([-0.3, 0.1, 0.2]), 0.9, 0.3),  # too few: the largest
        (np.array([]), 0.9, math.inf),
    ],
)
def test_the_width_that_covers_nine_cases_in_ten(errors: np.ndarray, coverage: float, width: float):
    assert quantile_interval(errors, coverage) == pytest.approx(width, abs=0.002)


def program(calls: int, fused: int, parameters: int, footprint: int = 0) -> Program:
    kernels = (Kernel("aten", RELU, ("0",)),) * calls + (Kernel("triton", RELU, ("0",)),) * fused
    return Program(kernels, (0.0,) * len(kernels), calls, calls, parameters, footprint)


DISPATCH = {"other": 5.0}
TABLES = {
    "dispatch": DISPATCH,
    "eager_host": {**PRIORS["eager_host"], "call": 1.0, "start": 55.0},
    "eager_device": {"warm_launch": 0.0, "cold_launch": 0.0},
    "eager_wall": {"gap": 0.6, "synchronise": 30.0},
    "default_host": {**PRIORS["default_host"], "triton": 9.0},
    "default_device": {"warm_launch": 0.0, "cold_launch": 0.0},
    "default_wall": {"gap": 0.0, "synchronise": 15.0},
    "graph_host": {"parameter": 0.5, "module": 1.0, "node": 0.1, "start": 90.0},
}


def cases(count: int = 12) -> list[Case]:
    """Models of growing size, of which every second is bound by the device, timed by `TABLES`."""
    made = []
    for index in range(count):
        eager, compiled = program(20 + 13 * index, 0, 7), program(10 + 9 * index, 9 + 7 * (index % 5), 20 + 31 * index)
        us = 60.0 if index % 2 else 3.0
        times = [us] * len(eager.kernels), [us] * len(compiled.kernels)
        timings = {
            "eager": timeline.eager_timing(eager, times[0], TABLES),
            "default": timeline.default_timing(compiled, times[1], TABLES),
        }
        measured = {"graph_us": timeline.graph_timing(compiled, times[1], TABLES).latency_us}
        for way, timing in timings.items():
            measured |= {f"{way}_us": timing.latency_us, f"{way}_host_us": timing.host_us}
            measured[f"{way}_device_us"] = timing.device_us
        made.append(Case(eager, compiled, *times, measured))
    return made


def test_the_tables_reproduce_the_models_that_they_were_fitted_to():
    known = cases()
    tables = fit_tables(known, DISPATCH)
    for case in known:
        eager = timeline.eager_timing(case.eager, case.eager_kernel_us, tables)
        default = timeline.default_timing(case.compiled, case.compiled_kernel_us, tables)
        assert eager.host_us == pytest.approx(case.measured["eager_host_us"], rel=0.05)
        assert default.host_us == pytest.approx(case.measured["default_host_us"], rel=0.05)
        assert eager.latency_us == pytest.approx(case.measured["eager_us"], rel=0.05)
        assert default.latency_us == pytest.approx(case.measured["default_us"], rel=0.05)
    assert tables["eager_wall"]["gap"] == pytest.approx(0.6)


def test_a_faster_host_at_the_time_is_taken_out():
    slow, fast = cases(), []
    for case in slow:
        host = {key: us / 2 if key.endswith("host_us") else us for key, us in case.measured.items()}
        fast.append(Case(case.eager, case.compiled, case.eager_kernel_us, case.compiled_kernel_us, host, host_speed=2))
    left, right = fit_tables(slow, DISPATCH), fit_tables(fast, DISPATCH)
    assert left["default_host"] == pytest.approx(right["default_host"])
    assert left["eager_host"] == pytest.approx(right["eager_host"])


def test_what_a_warm_and_a_cold_cache_cost_a_launch():
    cold, warm = (program(10, 0, 0, footprint=int(share * timeline.CACHE_BYTES)) for share in (3, 0))
    known = [Case(cold, cold, [5.0] * 10, [5.0] * 10, {"eager_device_us": 58.0})] * 9
    known += [Case(warm, warm, [5.0] * 10, [5.0] * 10, {"eager_device_us": 52.0})] * 9
    found = fit_tables(known, DISPATCH)["eager_device"]
    # 9 x (10 / 52)^2 x 0.2 + 0.02 / 0.1^2 x 0.1 over the sum of both weights; 0.8 and 0.45 of 58 us likewise
    assert found == pytest.approx({"warm_launch": 0.11427, "cold_launch": 0.70559}, rel=1e-3)


def test_what_is_given_is_taken_from_the_target():
    rows = [{"a": 1.0}, {"a": 2.0}]
    assert ridge(rows, [5.0, 7.0], {"a": 1.0}, 1e-9, given=[3.0, 3.0])["a"] == pytest.approx(2.0)  # 3 + 2, 3 + 4


def test_without_a_model_every_table_is_there():
    tables = fit_tables([], DISPATCH)
    assert tables["graph_host"] == PRIORS["graph_host"]
    assert tables["eager_wall"] == {"gap": 1.0, "synchronise": 20.0}
    on_cpu = fit_tables([], None)
    assert {*tables, "compile"} == set(COSTS)
    assert {*on_cpu, "compile"} == set(CPU_COSTS)
    for name, prior in PRIORS.items():
        assert {**COSTS, **CPU_COSTS}[name] == tuple(prior)
        assert {**tables, **on_cpu}.get(name, prior) == pytest.approx(dict(prior))


def test_compile_times_keep_the_scale_of_those_timed_alone():
    known = cases()
    alone = [1.0 + 0.004 * len(case.compiled.kernels) + 0.06 for case in known]
    contended = [2.0 * seconds for seconds in alone]
    cold = [seconds if index < 4 else None for index, seconds in enumerate(alone)]
    costs = fit_compile(known, contended, cold)
    for case, seconds in zip(known, alone, strict=True):
        counts = {"operator": len(case.compiled.kernels), "distinct_kernel": 1, "start": 1}
        assert timeline.total(counts, costs) / 1e6 == pytest.approx(seconds, rel=0.05)


def test_too_few_compile_times_are_no_reason_to_leave_the_prior():
    known = cases(3)
    assert fit_compile(known, [1.0, None, 3.0], [None] * 3) == PRIORS["compile"]
