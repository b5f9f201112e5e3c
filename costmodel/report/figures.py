"""Figures as text: a fixed number of digits, and `-` where there is none."""

from __future__ import annotations

import math

NONE = "-"
"""Text of a figure that does not exist."""

NEVER = math.inf
"""Calls to break-even of a compilation that does not pay off."""

_MOST = 999
"""Largest ratio that is written out."""

MEBIBYTE = 2**20
GIBIBYTE = 2**30

Interval = tuple[float | None, float | None]
"""Lower and upper bound."""


def number(value: float | None, digits: int = 2) -> str:
    """A number with `digits` decimals."""
    return NONE if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def tenths(value: float | None) -> str:
    """A number with one decimal."""
    return number(value, 1)


def seconds(value: float | None) -> str:
    """Seconds to two significant digits: 0.95, 2.1, 13, 120."""
    if value is None or not math.isfinite(value):
        return NONE
    rounded = float(f"{value:.2g}")
    return number(rounded, max(0, 1 - math.floor(math.log10(rounded))) if rounded > 0 else 1)


def whole(value: float | None) -> str:
    """A number without decimals."""
    return number(value, 0)


def milliseconds(value: float | None) -> str:
    """A time to about four significant figures: 0.123, 12.35, 123.5."""
    size = abs(value or 0.0)
    return number(value, 1 if size >= 100 else 2 if size >= 10 else 3)


def times(value: float | None) -> str:
    """A ratio: `1.50x`; `117x` from 100 on, and `>999x` above that, where next to nothing is left."""
    if value is not None and _MOST < value < math.inf:
        return f">{_MOST}x"
    text = _ratio(value)
    return text if text == NONE else f"{text}x"


def percent(share: float | None) -> str:
    """A signed share in percent: `+20.0%`."""
    return NONE if share is None or not math.isfinite(share) else f"{share:+.1%}"


def scientific(value: float | None) -> str:
    """A number as mantissa and exponent: `2.0e-04`."""
    return NONE if value is None or not math.isfinite(value) else f"{value:.1e}"


def mebibytes(nbytes: float | None) -> str:
    """Bytes in MiB, 2^20 bytes, with one decimal."""
    return NONE if nbytes is None else number(nbytes / MEBIBYTE, 1)


def gibibytes(nbytes: float | None) -> str:
    """Bytes in GiB, 2^30 bytes, with one decimal."""
    return NONE if nbytes is None else number(nbytes / GIBIBYTE, 1)


def calls(value: float | None) -> str:
    """Calls to break-even: `15,000 calls`, or `never` for NEVER."""
    if value is None:
        return NONE
    return "never" if value == NEVER else counted(int(value), "call")


def time_interval(bounds: Interval) -> str:
    """Two times as an interval: `6.300-7.100`."""
    return _joined(*map(milliseconds, bounds))


def ratio_interval(bounds: Interval) -> str:
    """Two ratios as an interval, with the digits of `times`: `1.40-1.60`, `560-999+`; empty if both are above 999."""
    low, high = bounds
    if low is not None and low > _MOST:
        return ""
    above = high is not None and _MOST < high < math.inf
    return _joined(_ratio(low), f"{_MOST}+" if above else _ratio(high))


def seconds_interval(bounds: Interval) -> str:
    """Two durations in seconds as an interval: `9.1-18`."""
    return _joined(*map(seconds, bounds))


def calls_interval(bounds: Interval) -> str:
    """Two numbers of calls as an interval: `9,100-31,000`, or `9,100-never` up to NEVER."""
    low, high = bounds
    if low is None or high is None or low == NEVER:
        return ""
    return f"{low:,.0f}-{'never' if high == NEVER else f'{high:,.0f}'}"


def duration(seconds: float) -> str:
    """A duration: `02:00`, or `1:02:00` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def counted(count: int, noun: str) -> str:
    """A count and its noun, in the plural unless there is one: `1 call`, `2 calls`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _ratio(value: float | None) -> str:
    return number(value, 0 if value is not None and value >= 100 else 2)


def _joined(low: str, high: str) -> str:
    """An interval; empty where a bound is missing."""
    return "" if NONE in (low, high) else f"{low}-{high}"
