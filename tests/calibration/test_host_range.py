"""Range of hosts and coverage on machines left out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.calibration.host_range import coverage_by_machine, host_range, inside, latency_at, predicted_at

ROW = {
    "eager_us": 104.0, "eager_host_us": 100.0, "eager_device_us": 10.0,
    "default_us": 52.0, "default_host_us": 20.0, "default_device_us": 50.0,
    "graph_us": 30.0, "graph_host_us": 10.0, "graph_device_us": 20.0,
    "speedup/default": 2.0, "speedup/reduce-overhead": 104 / 30,
}  # fmt: skip
"""Eager execution waits for the host, `default` for the device; a replay takes as long as both."""


def test_a_host_twice_as_slow_doubles_what_waits_for_it():
    frame = pd.DataFrame([ROW])
    assert latency_at(frame, "eager", 0.5) == pytest.approx(208.0)
    assert latency_at(frame, "default", 0.8) == pytest.approx(52.0, rel=1e-2)  # 25 us of 50
    assert latency_at(frame, "reduce-overhead", 0.5) == pytest.approx(20.0 + 20.0)
    assert predicted_at(frame, "speedup", "reduce-overhead", 0.5) == pytest.approx(208 / 40)


def test_on_the_predicted_host_nothing_changes():
    frame = pd.DataFrame([ROW])
    for mode, name in {"eager": "eager", "default": "default", "reduce-overhead": "graph"}.items():
        assert latency_at(frame, mode, 1.0) == pytest.approx(ROW[f"{name}_us"])


def test_the_range_of_two_machines_by_hand():
    """Student's t with one degree of freedom, 90 % quantile: tan(0.4 pi) = 3.0777; sd of logs log(4) / sqrt(2)."""
    half = 3.0777 * np.log(4.0) / np.sqrt(2) * np.sqrt(1.5)
    assert host_range([2.0, 8.0]) == pytest.approx((4 * np.exp(-half), 4 * np.exp(half)), rel=1e-4)


@given(st.lists(st.floats(3.0, 30.0), min_size=2, max_size=8), st.floats(0.5, 2.0))
def test_the_range_scales_with_its_machines_and_holds_their_middle(machines: list[float], factor: float):
    low, high = host_range(machines)
    assert low <= np.exp(np.log(machines).mean()) * (1 + 1e-9)
    assert high >= np.exp(np.log(machines).mean()) * (1 - 1e-9)
    assert host_range([us * factor for us in machines]) == pytest.approx((low * factor, high * factor))


def test_a_measurement_counts_if_any_host_of_the_range_explains_it():
    frame = pd.DataFrame([ROW | {"measured_eager_us": us} for us in (100.0, 150.0, 229.0, 233.0, np.nan)])
    width = np.log(1.1)
    found = inside(frame, "latency", "eager", (1.0, 0.5), width)  # 104 / 1.1 = 94.5 to 208 x 1.1 = 228.8
    np.testing.assert_array_equal(found, [1.0, 1.0, 0.0, 0.0, np.nan])


def test_a_machine_is_judged_by_the_others():
    """Three machines; the slowest takes four times as long as the two others, whose range ends before it."""
    rows = []
    for machine, speed in enumerate((1.0, 1.0 / 1.02, 0.25)):
        seen = {"measured_eager_us": 104.0 / speed, "batch_size": 1}
        rows.append(ROW | seen | {"environment": machine, "host_speed": speed})
    found = coverage_by_machine(pd.DataFrame(rows), 5.0, {"latency": {"eager": 0.1}, "speedup": {"default": 0.1}})
    assert [(row["machine"], row["inside"], row["cases"]) for row in found] == [(0, 1.0, 1), (1, 1.0, 1), (2, 0.0, 1)]
    assert [row["launch_us"] for row in found] == pytest.approx([5.0, 5.1, 20.0])
