"""Scores of predicted training steps, by hand."""

from __future__ import annotations

import pytest
from measured_steps import step_lines
from training_accuracy import MeasuredStep, error, summary

ROWS = [
    {
        "family": family,
        "mode": mode,
        "latency_ms": latency,
        "predicted_ms": predicted,
        "speedup": speedup,
        "predicted_speedup": guessed,
        "host_ms": None,
        "predicted_host_ms": 1.0,
        "device_ms": None,
        "predicted_device_ms": 1.0,
        "peak_bytes": peak,
        "predicted_peak_bytes": 110,
    }
    for family, mode, latency, predicted, speedup, guessed, peak in (
        ("a", "eager", 10.0, 9.0, 1.0, 1.0, 100),
        ("b", "eager", 10.0, 12.0, 1.0, 1.0, None),
        ("a", "default", 5.0, 5.0, 2.0, 1.8, None),
        ("b", "default", 20.0, 20.0, 0.5, 0.6, None),
    )
]


def test_mean_errors_and_the_constant_of_the_other_families():
    found = {(row["mode"], row["quantity"]): row for row in summary(ROWS)}
    assert set(found) == {
        ("eager", "latency_ms"),
        ("eager", "peak_bytes"),
        ("default", "speedup"),
        ("default", "latency_ms"),
    }
    assert found["eager", "latency_ms"]["mean_error"] == pytest.approx((0.1 + 0.2) / 2)
    assert found["eager", "peak_bytes"]["mean_error"] == pytest.approx(0.1)
    assert found["default", "speedup"]["mean_error"] == pytest.approx((0.1 + 0.2) / 2)
    # each family's constant is the other one's speedup: 0.5 for 2.0, and 2.0 for 0.5
    assert found["default", "speedup"]["constant"] == pytest.approx((0.75 + 3.0) / 2)
    assert found["default", "speedup"]["within_10_percent"] == pytest.approx(0.5)


def test_an_error_needs_both_figures():
    assert error(11.0, 10.0) == pytest.approx(0.1)
    assert error(None, 10.0) is None
    assert error(1.0, None) is None


def test_latencies_are_medians_of_rounds():
    quantiles = [[0, 0, 1000.0, 0, 0], [0, 0, 3000.0, 0, 0]]
    record = {"latency_us": {"eager/default": quantiles, "default": [[0, 0, 500.0, 0, 0]]}}
    step = MeasuredStep(record, None, "a")  # type: ignore[arg-type]  # of no use here
    assert step.latency_ms == {"eager": 2.0, "default": 0.5}
    assert step.speedup("default") == 4.0


def test_lines_of_measured_steps():
    modes = {
        "eager": {"predicted_ms": 11.0, "measured_ms": 10.0, "speedup": None},
        "default": {"predicted_ms": 5.5, "measured_ms": 5.0, "speedup": 2.0},
    }
    lines = step_lines([{"case": ["resnet18", 8, "none", "sgd"], "modes": modes}, {"case": ["x"], "error": "no"}])
    assert lines == [
        "resnet18 8 none sgd: eager 10.00 ms (+10%), default 5.00 ms (+10%)",
        "x: no",
        "latency of eager: mean error 10.0% of 1",
        "latency of default: mean error 10.0% of 1",
        "speedup of default: mean error 0.0% of 1",
    ]
