"""Bars and intervals as geometry in percent of a chart's width, which a stretched SVG draws at any width."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_SPAN = 1.25
"""Ratio that a logarithmic axis reaches at least, to both sides of 1."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval, and a mark of comparison; percent of the chart's width.

    Attributes:
        at: the value.
        low, high: the interval; equal to `at` where there is none.
        one: place of the value 1 on a logarithmic axis; 0 on a linear one.
    """

    at: float
    low: float
    high: float
    one: float = 0.0


def linear_bar(value: float, low: float | None, high: float | None, longest: float) -> Bar:
    """A bar from 0, on an axis that ends at `longest`."""
    return Bar(*(_percent(_known(bound, value) / longest if longest > 0.0 else 0.0) for bound in (value, low, high)))


def ratio_axis(values: Iterable[float | None]) -> float:
    """Logarithm of the largest ratio to 1, upwards or downwards: the half-length of a logarithmic axis."""
    known = [abs(math.log(value)) for value in values if value is not None and math.isfinite(value) and value > 0.0]
    return max([math.log(LEAST_SPAN), *known])


def ratio_bar(value: float, low: float | None, high: float | None, span: float, least: float) -> Bar:
    """A ratio on a logarithmic axis from `exp(-least)` to `exp(span)`."""
    length = span + least
    places = [_percent((math.log(max(1e-9, _known(bound, value))) + least) / length) for bound in (value, low, high)]
    return Bar(places[0], places[1], places[2], _percent(least / length))


def _known(bound: float | None, value: float) -> float:
    return value if bound is None or not math.isfinite(bound) else bound


def _percent(share: float) -> float:
    return round(100.0 * min(1.0, max(0.0, share)), 2) if math.isfinite(share) else 0.0
