"""Colour of a speedup: orange below 1, white at 1, blue above; colour-blind readers can distinguish them."""

from __future__ import annotations

import math

UNKNOWN = "#d9d9d9"
"""Colour of a unit without a prediction."""
LIMIT = 4.0
"""Speedup of the deepest blue; its inverse has the deepest orange."""

_SLOWER, _EQUAL, _FASTER = (230, 97, 1), (247, 247, 247), (67, 147, 195)


def speedup_color(speedup: float | None) -> str:
    """Colour as `#rrggbb`; its depth is proportional to the logarithm of the speedup, up to LIMIT."""
    if speedup is None or not math.isfinite(speedup) or speedup <= 0.0:
        return UNKNOWN
    depth = max(-1.0, min(1.0, math.log(speedup) / math.log(LIMIT)))
    end = _FASTER if depth > 0 else _SLOWER
    mixed = (round(a + (b - a) * abs(depth)) for a, b in zip(_EQUAL, end, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
