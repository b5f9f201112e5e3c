"""Times of modes that a profile gives: impossible ones, those of a model that is not compiled, unknown operators."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from costmodel.errors import ProfileError
from costmodel.ir import Calls, parse
from costmodel.ir.partition import Partition
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.modes import _as_compiled, _check_timings, _unruled_width
from costmodel.predictor.estimate import Estimate
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.queue import Timing

PROFILE: Any = SimpleNamespace(path=Path("some-gpu"))
GRAPH = parse("graph g {\n  input %x: float32[2]\n  %0 = relu(self=%x) : float32[2]\n  return %0\n}")
EAGER, DEFAULT = Timing(3.0, 2.0, 1.0), Timing(2.0, 1.0, 1.0)
TIMINGS = {"eager": EAGER, "default": DEFAULT, "reduce-overhead": DEFAULT}


@pytest.mark.parametrize("timing", [EAGER, Timing(1e-9, 0.0, 0.0)])
def test_times_from_zero_on_are_possible(timing: Timing):
    _check_timings({"eager": timing}, PROFILE)


@pytest.mark.parametrize(
    "timing",
    [
        Timing(0.0, 0.0, 0.0),
        Timing(-1.0, 1.0, 1.0),
        Timing(1.0, -1.0, 1.0),
        Timing(1.0, 1.0, -1.0),
        Timing(math.inf, 1.0, 1.0),
        Timing(1.0, math.nan, 1.0),
    ],
)
def test_impossible_times_name_the_mode_and_the_profile(timing: Timing):
    with pytest.raises(ProfileError, match=r"^some-gpu.card.json: its costs give default a latency of .* train the"):
        _check_timings({"eager": EAGER, "default": timing}, PROFILE)


def partitioned(*sections: int | None, failure: str = "") -> Any:
    return replace(GRAPH, partition=Partition(sections, len(sections), failure))


def test_a_model_that_is_not_compiled_runs_eagerly_in_each_mode():
    assert _as_compiled(GRAPH, TIMINGS) is TIMINGS
    assert _as_compiled(partitioned(0), TIMINGS) is TIMINGS
    assert _as_compiled(partitioned(None), TIMINGS) == dict.fromkeys(TIMINGS, EAGER)


def test_a_model_that_does_not_compile_has_no_other_mode():
    assert _as_compiled(partitioned(0, failure="no"), TIMINGS) == {"eager": EAGER}


def kernel(base: str) -> Kernel:
    text = f"graph _ {{\n  input %a: float32[4]\n  %0 = {base}(self=%a) : float32[4]\n  return %0\n}}"
    return Kernel("aten", parse(text), ("0",))


@pytest.mark.parametrize(
    ("bases", "times", "factor"),
    [
        (["relu", "relu"], [1.0, 3.0], 1.0),
        (["strange"], [2.0], 4.0),  # all may take four times as long
        (["relu", "strange"], [3.0, 1.0], 1.75),  # a quarter: 3 + 4 instead of 4
        ([], [], 1.0),
    ],
)
def test_operators_without_a_rule_may_take_four_times_as_long(bases: list[str], times: list[float], factor: float):
    kernels = tuple(map(kernel, bases))
    trace = IssueTrace(kernels, (0.5,) * len(kernels), 0, Calls(), 0, 0)
    estimates = [Estimate(us, us, us, True) for us in times]
    assert math.exp(_unruled_width(trace, estimates)) == pytest.approx(factor)
