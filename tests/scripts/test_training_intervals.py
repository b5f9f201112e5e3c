"""Summary of predicted training steps: errors and shares by hand."""

from __future__ import annotations

import training_intervals as script


def row(speedup: float, guess: float, low: float, high: float, host: str = "calibrated", fitted: str = "1") -> dict:
    """A step that takes 2 ms, predicted as 3 ms, between 1 and 2.5."""
    return {
        "mode": "default",
        "host": host,
        "fitted": fitted,
        "latency_ms": "2",
        "predicted_ms": "3",
        "low_ms": "1",
        "high_ms": "2.5",
        "speedup": str(speedup),
        "predicted_speedup": str(guess),
        "speedup_low": str(low),
        "speedup_high": str(high),
    }


def test_the_summary_by_hand():
    """Errors 0, 0.5 and 0.1: mean 0.2; two of three in their intervals; of two decided ones, one rightly."""
    rows = [
        row(1.2, 1.2, 1.1, 1.3),  # decided, rightly
        row(0.8, 1.2, 1.1, 1.3, fitted="0"),  # decided, wrongly; outside
        row(2.0, 2.2, 0.9, 3.0, fitted="0"),  # undecided
        row(1.0, 1.0, 0.5, 2.0, host="unknown"),
    ]
    names, found = zip(*(line.split(": ") for line in script.summary(rows)), strict=True)
    assert names == (
        "default, calibrated host, 3 steps",
        "default, calibrated host, new steps, 2 steps",
        "default, unknown host, 1 steps",
    )
    latency = "latency 50.0% off, 100% in its interval"
    assert found == (
        f"speedup 20.0% off, 67% in its interval; {latency}; 67% decided, 1 of 2 rightly",
        f"speedup 30.0% off, 50% in its interval; {latency}; 50% decided, 0 of 1 rightly",
        f"speedup 0.0% off, 100% in its interval; {latency}; 0% decided, 0 of 0 rightly",
    )
