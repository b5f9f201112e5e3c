"""Calls to break-even: by hand, in two digits, with an interval that may end at never."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.prediction.compile_fields import break_even
from costmodel.report.types import ModePrediction
from costmodel.timeline.compile_time import Seconds

EAGER = ModePrediction(6.0, 6.0, 6.0, 5.9, 2.0)
CERTAIN = Seconds(30.0, 30.0, 30.0)


def test_by_hand():
    # 6 ms x (1 - 1 / 1.5) = 2 ms a call; 30 s / 2 ms = 15,000 calls
    assert break_even(CERTAIN, EAGER, (1.5, 1.5, 1.5)) == (15000, 15000, 15000)
    # the compile time alone is uncertain, by a factor of 1.5
    assert break_even(Seconds(30.0, 20.0, 45.0), EAGER, (1.5, 1.5, 1.5)) == (15000, 10000, 22000)
    # at least 6 ms x (1 - 1 / 1.2) = 1 ms a call and at most 6 ms x (1 - 1 / 2) = 3 ms
    assert break_even(CERTAIN, EAGER, (1.5, 1.2, 2.0)) == (15000, 10000, 30000)


def test_independent_factors_add_up_in_squares():
    seconds = Seconds(30.0, 30.0 / math.exp(0.3), 30.0 * math.exp(0.3))
    eager = ModePrediction(6.0, 6.0 / math.exp(0.4), 6.0 * math.exp(0.4), 5.9, 2.0)
    calls, low, high = break_even(seconds, eager, (1.5, 1.5, 1.5))
    assert (calls, low, high) == (15000, 9100, 25000)  # 15,000 x e^0.5 = 24,731, x e^-0.5 = 9,098


@pytest.mark.parametrize(
    ("speedups", "expected"),
    [
        ((1.5, 0.9, 2.0), (15000, 10000, None)),  # 6 ms x (1 - 1 / 2) = 3 ms at best
        ((1.0, 0.8, 1.2), (None, 30000, None)),
        ((0.8, 0.7, 0.9), (None, None, None)),
    ],
)
def test_what_gains_nothing_never_pays_off(speedups: tuple[float, float, float], expected: tuple[int | None, ...]):
    assert break_even(CERTAIN, EAGER, speedups) == expected


positive = st.floats(1e-3, 1e3)


@given(seconds=positive, width=st.floats(0, 5), latency=positive, spread=st.floats(0, 2), speedup=positive)
def test_bounds_enclose_the_calls(seconds: float, width: float, latency: float, spread: float, speedup: float):
    compile_time = Seconds(seconds, seconds / math.exp(width), seconds * math.exp(width))
    eager = ModePrediction(latency, latency / math.exp(spread), latency * math.exp(spread), 1.0, 1.0)
    found = break_even(compile_time, eager, (speedup, speedup / math.exp(spread), speedup * math.exp(spread)))
    calls, low, high = (math.inf if value is None else value for value in found)
    assert 1 <= low <= calls <= high
    assert all(value is None or value == int(float(f"{value:.2g}")) for value in found)
