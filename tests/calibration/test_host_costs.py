"""Costs from whole models: known ones are recovered, one odd model does no harm, and no model at all is no error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from costmodel.calibration.host_costs import CalibrationCase, fit_tables, ridge
from costmodel.calibration.intervals import quantile_interval
from costmodel.ir import Calls, parse
from costmodel.kernels.kernel import Kernel
from costmodel.timeline import gpu
from costmodel.timeline.cost_tables import COSTS, CPU_COSTS, PRIORS
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.timed_trace import TimedTrace

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


def program(calls: int, fused: int, parameters: int, footprint: int = 0) -> IssueTrace:
    kernels = (Kernel("aten", RELU, ("0",)),) * calls + (Kernel("triton", RELU, ("0",)),) * fused
    return IssueTrace(kernels, (0.0,) * len(kernels), calls, Calls(calls, calls), parameters, footprint)


def timed(of: IssueTrace, us: float) -> TimedTrace:
    """All its kernels take so long on the device, and 5 us of the host."""
    return TimedTrace(of, [us] * len(of.kernels), [5.0] * len(of.kernels))


TABLES = {
    "eager_host": {**PRIORS["eager_host"], "view": 3.5, "start": 55.0},
    "eager_device": {"launch": 0.0},
    "eager_wall": {"gap": 0.6},
    "default_host": {**PRIORS["default_host"], "triton": 9.0},
    "default_device": {"launch": 0.0},
    "default_wall": {"gap": 0.0},
    "graph_host": {"parameter": 0.5, "module": 1.0, "start": 90.0},
}


def cases(count: int = 12) -> list[CalibrationCase]:
    """Models of growing size, of which every second is bound by the device, timed by `TABLES`."""
    made = []
    for index in range(count):
        eager, compiled = program(20 + 13 * index, 0, 7), program(10 + 9 * index, 9 + 7 * (index % 5), 20 + 31 * index)
        issued = [timed(one, 60.0 if index % 2 else 3.0) for one in (eager, compiled)]
        timings = {
            "eager": gpu.eager_timing(issued[0], TABLES),
            "default": gpu.default_timing(issued[1], TABLES),
        }
        measured = {"graph_us": gpu.replay_queue(issued[1], TABLES).latency_us(0.0)}
        for way, timing in timings.items():
            measured |= {f"{way}_us": timing.latency_us, f"{way}_host_us": timing.host_us}
            measured[f"{way}_device_us"] = timing.device_us
        made.append(CalibrationCase(*issued, measured))
    return made


def test_the_tables_reproduce_the_models_that_they_were_fitted_to():
    known = cases()
    tables = fit_tables(known)
    for case in known:
        eager = gpu.eager_timing(case.eager, tables)
        default = gpu.default_timing(case.compiled, tables)
        assert eager.host_us == pytest.approx(case.measured["eager_host_us"], rel=0.05)
        assert default.host_us == pytest.approx(case.measured["default_host_us"], rel=0.05)
        assert eager.latency_us == pytest.approx(case.measured["eager_us"], rel=0.05)
        assert default.latency_us == pytest.approx(case.measured["default_us"], rel=0.05)
    assert tables["eager_wall"]["gap"] == pytest.approx(0.6)


def test_a_faster_host_at_the_time_is_taken_out():
    slow, fast = cases(), []
    for case in slow:
        host = {key: us / 2 if key.endswith("host_us") else us for key, us in case.measured.items()}
        fast.append(CalibrationCase(case.eager, case.compiled, host, host_speed=2))
    left, right = fit_tables(slow), fit_tables(fast)
    assert left["default_host"] == pytest.approx(right["default_host"])
    assert left["eager_host"] == pytest.approx(right["eager_host"])


def test_what_a_launch_costs_in_a_model():
    ten = timed(program(10, 0, 0), 5.0)
    found = fit_tables([CalibrationCase(ten, ten, {"eager_device_us": 52.0})] * 9)["eager_device"]
    # (9 x (10 / 52)^2 x 0.2 + 0.02 / 0.25^2 x 0.25) / (9 x (10 / 52)^2 + 0.02 / 0.25^2): 0.2 us each, drawn to 0.25
    assert found == pytest.approx({"launch": 0.14658 / 0.65284}, rel=1e-3)


def test_what_is_given_is_taken_from_the_target():
    rows = [{"a": 1.0}, {"a": 2.0}]
    assert ridge(rows, [5.0, 7.0], {"a": 1.0}, 1e-9, given=[3.0, 3.0])["a"] == pytest.approx(2.0)  # 3 + 2, 3 + 4


def test_without_a_model_every_table_is_there():
    tables = fit_tables([])
    assert tables["graph_host"] == PRIORS["graph_host"]
    assert tables["eager_wall"] == {"gap": 1.0}
    on_cpu = fit_tables([], on_cpu=True)
    assert {*tables, "compile"} == set(COSTS)
    assert {*on_cpu, "compile"} == set(CPU_COSTS)
    for name, prior in PRIORS.items():
        assert {**COSTS, **CPU_COSTS}[name] == (("start",) if name == "compile" else tuple(prior))
        assert {**tables, **on_cpu}.get(name, prior) == pytest.approx(dict(prior))
