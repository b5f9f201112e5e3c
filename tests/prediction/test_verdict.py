"""Verdicts from intervals of speedup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.prediction.verdict import verdict_of
from costmodel.report.types import ModePrediction

EAGER = ModePrediction(4.0, 3.0, 5.0, 1.0, 1.0)
Interval = tuple[float, float, float]
"""Lower bound, speedup, upper bound."""


def modes(default: Interval, graph: Interval | None = None) -> dict[str, ModePrediction]:
    found = {"eager": EAGER}
    for name, interval in (("default", default), ("reduce-overhead", graph)):
        if interval is not None:
            low, speedup, high = interval
            found[name] = ModePrediction(4.0, 3.0, 5.0, 1.0, 1.0, speedup, low, high)
    return found


@pytest.mark.parametrize(
    ("default", "graph", "verdict", "leaning"),
    [
        ((1.1, 1.3, 1.5), None, "compile", "compile"),
        ((0.9, 1.3, 1.5), None, "uncertain", "compile"),
        ((0.5, 0.9, 1.1), None, "uncertain", "leave"),
        ((0.5, 0.7, 0.9), None, "leave", "leave"),
        # the fastest mode is uncertain, and another certain
        ((1.1, 1.2, 1.3), (0.9, 1.5, 2.5), "compile", "compile"),
        # one mode may gain
        ((0.5, 0.7, 0.9), (0.8, 1.0, 1.2), "uncertain", "leave"),
        ((0.5, 0.7, 0.9), (1.2, 1.3, 1.4), "compile", "compile"),
        # a bound of exactly 1 decides nothing, and no gain is no reason to compile
        ((1.0, 1.2, 1.4), None, "uncertain", "compile"),
        ((0.6, 0.8, 1.0), None, "uncertain", "leave"),
        ((0.8, 1.0, 1.2), None, "uncertain", "leave"),
    ],
)
def test_the_verdict_is_that_of_the_intervals(default: Interval, graph: Interval | None, verdict: str, leaning: str):
    assert verdict_of(modes(default, graph), whole=True) == (verdict, leaning)


def test_nothing_is_said_of_a_part_of_a_model_or_of_no_mode():
    assert verdict_of(modes((1.1, 1.3, 1.5)), whole=False) == ("uncertain", None)
    assert verdict_of({"eager": EAGER}, whole=True) == ("uncertain", None)


speedups = st.floats(0.05, 20.0)


@given(st.tuples(speedups, speedups, speedups).map(sorted), st.tuples(speedups, speedups, speedups).map(sorted))
def test_a_decided_verdict_leans_its_own_way(default: list[float], graph: list[float]):
    verdict, leaning = verdict_of(modes(tuple(default), tuple(graph)), whole=True)
    assert verdict == "uncertain" or verdict == leaning
    assert (verdict == "compile") == (max(default[0], graph[0]) > 1.0)
    assert (verdict == "leave") == (max(default[2], graph[2]) < 1.0)


def test_modes_without_an_interval_or_without_a_speedup():
    no_bounds = {"eager": EAGER, "default": ModePrediction(4.0, 3.0, 5.0, 1.0, 1.0, 1.3)}
    assert verdict_of(no_bounds, whole=True) == ("uncertain", "compile")
    slower = {"eager": EAGER, "default": ModePrediction(4.0, 3.0, 5.0, 1.0, 1.0, 0.7)}
    assert verdict_of(slower, whole=True) == ("uncertain", "leave")
    unknown = {"eager": EAGER, "default": ModePrediction(4.0, 3.0, 5.0, 1.0, 1.0)}
    assert verdict_of(unknown, whole=True) == ("uncertain", None)
    assert verdict_of(unknown | modes((0.5, 0.7, 0.9)), whole=True) == ("leave", "leave")


def test_eager_execution_is_no_mode_to_compile_for():
    faster = ModePrediction(4.0, 3.0, 5.0, 1.0, 1.0, 2.0, 1.5, 2.5)
    assert verdict_of({"eager": faster}, whole=True) == ("uncertain", None)
