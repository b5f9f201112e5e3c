"""Tables of other settings and of training steps, by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from settings_tables import constant_error, gains_table, settings_table


def test_a_constant_is_the_geometric_mean_of_the_others() -> None:
    """1, 2 and 8: others' means 4, sqrt 8 and sqrt 2; errors 3, sqrt 2 - 1 and 1 - sqrt 2 / 8."""
    expected = (3 + math.sqrt(2) - 1 + 1 - math.sqrt(2) / 8) / 3
    assert constant_error([1.0, 2.0, 8.0]) == pytest.approx(expected)
    assert math.isnan(constant_error([2.0]))


def test_errors_by_setting_mode_and_host() -> None:
    measured = {"batch_size": 32, "measured_speedup": 2.0, "measured_eager_us": 10.0, "measured_us": 5.0}
    cases = [
        {"host": "uncalibrated", "predicted_speedup": 3.0, "predicted_eager_us": 12.0, "predicted_us": 4.0},
        {"host": "calibrated", "predicted_speedup": 2.2, "predicted_eager_us": 11.0, "predicted_us": 5.0},
    ]
    rows = [{"arithmetic": "amp float16", "mode": "default", **measured, **case} for case in cases for _ in range(2)]
    line = settings_table(pd.DataFrame(rows)).splitlines()[2]
    cells = ("amp float16, batch 32", "`default`", "2", "50.0 %, 50.0 %", "10.0 %, 10.0 %", "0.0 %", "10.0 %", "0.0 %")
    assert line == f"| {' | '.join(cells)} |"


def test_gains_of_a_mode_that_was_not_measured_are_left_out() -> None:
    row = {"case": "net@8 float32 nchw training momentum", "mode": "default", "speedup": 1.25, "predicted_speedup": 1.5}
    assert gains_table([row]).splitlines()[2] == "| net@8 float32 nchw | 1.25 (1.50) | - |"
