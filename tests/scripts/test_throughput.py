"""Rates of sweeps and differences between two, by hand."""

from __future__ import annotations

from throughput import apart, rate

from collectors.workloads.cases import Case


def case_of(graph: str, runner: str = "aten", unit: str = "") -> Case:
    return Case(graph, runner, unit)


def row(median_us: float, status: str = "ok") -> dict[str, object]:
    return {"status": status, "device_us": [0.0, 0.0, median_us, 0.0, 0.0]}


def test_only_whole_units_count():
    cases = [case_of("a", unit="u"), case_of("b", unit="u"), case_of("c", "inductor"), case_of("d")]
    found = {(case.key, case.unit): {"runner": case.runner, "status": "ok"} for case in cases[1:]}
    assert rate(cases, found, 30.0) == {
        "seconds": 30.0,
        "units": 2,  # of the first unit a case is missing
        "cases": {"aten ok": 2, "inductor ok": 1},
        "units_per_minute": 4.0,  # all three would have taken 45 seconds
    }


def test_the_start_counts_once_if_time_was_short():
    cases = [case_of(name) for name in "abcd"]
    found = {(case.key, case.unit): {"runner": "aten", "status": "ok"} for case in cases[:2]}
    measured = rate(cases, found, 30.0, start_seconds=10.0)
    assert measured["units_per_minute"] == 4.8  # four would have taken 10 + 2 x 20 seconds
    assert rate(cases, {}, 30.0)["units_per_minute"] == 0.0


def test_only_cases_that_are_ok_in_both_are_compared():
    found = {"a": row(1.1), "b": row(0.7), "c": row(2.0), "d": row(9.0), "e": row(9.0, "noisy"), "f": row(3.0)}
    reference = {"a": row(1.0), "b": row(1.0), "c": row(2.0), "d": row(1.0, "noisy"), "e": row(1.0)}
    expected = {"cases": 3, "median_absolute": 0.1, "p90_absolute": 0.3, "median_signed": 0.0}
    assert apart(found, reference, "device_us") == expected  # +0.1, -0.3, 0.0
    assert apart(found, {}, "device_us") == {"cases": 0}
