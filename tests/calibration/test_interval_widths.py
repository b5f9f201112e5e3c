"""Widths of 90 % prediction intervals that a profile gets from measured models, by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from costmodel.calibration.intervals import coverage, intervals

ERRORS = [(-1) ** case * case / 100 for case in range(1, 20)]
"""Logarithms of predicted over measured of 19 cases, of both signs: rank ceil(20 * 0.9) = 18 of 19 leaves one out."""


def frame(*, families: int = 1) -> pd.DataFrame:
    rows = [
        {
            "family": str(case % families),
            "environment": 0,
            "measured_default_us": 10.0,
            "default_us": 10.0 * math.exp(error),
            "measured_speedup/default": 2.0,
            "speedup/default": 2.0 * math.exp(error / 2),
        }
        for case, error in enumerate(ERRORS)
    ]
    return pd.DataFrame(rows)


def test_an_interval_covers_nine_cases_in_ten():
    found = intervals(frame())
    # numpy's quantile at 18/19 of 0.01 ... 0.19 lies 18 * 18 / 19 steps of 0.01 above the first
    assert found["latency"]["default"] == pytest.approx(0.01 + 0.01 * 18 * 18 / 19)
    assert found["speedup"]["default"] == pytest.approx((0.01 + 0.01 * 18 * 18 / 19) / 2)


def test_coverage_counts_cases_within_the_interval_of_other_families():
    """Errors by turns in two families: the widest of each holds all of the other but its own largest."""
    share = coverage(frame(families=2))["default"]
    odd, even = [abs(one) / 2 for one in ERRORS[1::2]], [abs(one) / 2 for one in ERRORS[::2]]
    # ranks ceil(10 * 0.9) = 9 of 9 and ceil(11 * 0.9) = 10 of 10: the largest error of the other family
    inside = sum(one <= max(odd) for one in even) + sum(one <= max(even) for one in odd)
    assert inside == 18
    assert share == pytest.approx(18 / 19)
