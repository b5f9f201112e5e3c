"""Residuals of made-up models whose latencies are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from costmodel.calibration import residuals
from costmodel.calibration.host_costs import CalibrationCase
from costmodel.calibration.measured_model import MeasuredModel
from costmodel.calibration.residual_fit import Residuals
from costmodel.ir import Calls, parse
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.cost_tables import COSTS, LAUNCH_COSTS, WALL_COSTS
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.residual_gp import no_residuals
from costmodel.timeline.timed_trace import TimedTrace

RELU = "graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n  return %0\n}"
PROGRAM = IssueTrace(
    (Kernel("aten", parse(RELU), ("0",)),), (0.0,), views=0, calls=Calls(modules=1), parameters=0, footprint=512
)
TABLES = {"eager_host": dict.fromkeys(COSTS["eager_host"], 0.0) | {"start": 18.0}}
TABLES |= {"default_host": dict.fromkeys(COSTS["default_host"], 0.0) | {"start": 18.0}}
TABLES |= {"graph_host": dict.fromkeys(COSTS["graph_host"], 0.0) | {"start": 8.0}}
for _way in ("eager", "default"):
    TABLES |= {f"{_way}_device": dict.fromkeys(LAUNCH_COSTS, 0.0)}
    TABLES |= {f"{_way}_wall": dict.fromkeys(WALL_COSTS, 0.0)}


def known(trace: IssueTrace = PROGRAM, host_speed: float = 1.0) -> CalibrationCase:
    timed = TimedTrace(trace, [2.0], [5.0])
    return CalibrationCase(timed, timed, {}, host_speed)


def measured(model: str, eager_us: float) -> MeasuredModel:
    return MeasuredModel(model, 1, "float32", "nchw", {"eager_us": eager_us}, {})


def test_costs_and_residuals_of_others_come_from_what_is_learnt_from(monkeypatch: pytest.MonkeyPatch):
    asked: dict[str, object] = {}

    def fit_tables(some: list[CalibrationCase], on_cpu: bool) -> dict[str, dict[str, float]]:
        asked["speeds"], asked["on_cpu"] = [one.host_speed for one in some], on_cpu
        return TABLES

    def fit(some: Residuals) -> object:
        asked["logs"] = some.logs["eager"].tolist()
        return no_residuals()

    monkeypatch.setattr(residuals.host_costs, "fit_tables", fit_tables)
    monkeypatch.setattr(residuals.residual_fit, "fit", fit)
    cases = [measured("a", 20.0), measured("b", 40.0), measured("c", 80.0)]
    some = [known(host_speed=1.0), known(host_speed=0.5), known(host_speed=2.0)]
    found = residuals.fit(cases, some, np.array([True, False, True]))
    assert asked["speeds"] == [1.0, 2.0]
    assert asked["on_cpu"] is False
    # 18, 36 and 9 us of host, 2 of device
    logs = [math.log(20 / 20), math.log(40 / 38), math.log(80 / 11)]
    assert asked["logs"] == pytest.approx(logs[::2])
    assert found.unexplained.logs["eager"] == pytest.approx(logs)
    assert found.costs is TABLES


def test_what_is_left_unexplained_by_hand():
    cases = [MeasuredModel("alexnet", 1, "float32", "nchw", {"eager_us": 40.0, "graph_us": 10.0}, {}) for _ in range(3)]
    slow = known(host_speed=0.5)
    found = residuals.unexplained(cases, [known(), known(), slow], TABLES)
    # 18 us of host, 36 where it is half as fast, 2 of device
    assert found.logs["eager"] == pytest.approx([math.log(2.0), math.log(2.0), math.log(40 / 38)])
    assert np.isnan(found.logs["default"]).all()
    assert found.logs["reduce-overhead"] == pytest.approx([math.log(10 / 10), math.log(10 / 10), math.log(10 / 18)])
