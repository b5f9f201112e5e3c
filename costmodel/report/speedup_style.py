"""Colour of a speedup in a terminal."""

from __future__ import annotations

GAIN, LOSS = 1.03, 0.97
"""Speedups from which a gain or a loss is coloured; closer to 1 is within the noise of a measurement."""


def speedup_style(speedup: float | None) -> str:
    """Green for a gain, red for a loss."""
    if speedup is None or LOSS <= speedup <= GAIN:
        return ""
    return "green" if speedup > 1 else "red"
