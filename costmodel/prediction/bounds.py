"""Bounds of 90 % prediction intervals: over the hosts that an interval covers, widened for unmeasured kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from costmodel.predictor.estimate import Estimate
from costmodel.report.types import EAGER
from costmodel.timeline.queue import Timing

CORRELATION = 0.25
"""Half-width of a pass's device time relative to the mean of its kernels', beyond that of measured models.

The least for which nine in ten speedups of the tuning half of the user models lie in their intervals
(`docs/accuracy.md`)."""
KeyedEstimate = tuple[tuple[str, str], Estimate]
"""A kernel's key, equal for kernels that take the same time, and its estimate."""
Timings = Mapping[str, Timing]
"""Times of a call by mode, on one host."""


def latency_bounds(hosts: Sequence[Timings], mode: str, width: float) -> tuple[float, float]:
    """Lower and upper bound of the latency in a mode, microseconds.

    The interval is the union of the intervals of the hosts: it covers what it would cover if the host was known.

    Args:
        hosts: times on each host that the interval covers.
        mode: the mode.
        width: half-width of the interval of the logarithm on a known host.
    """
    return _union([timings[mode].latency_us for timings in hosts], width)


def speedup_bounds(hosts: Sequence[Timings], mode: str, width: float) -> tuple[float, float]:
    """Lower and upper bound of the speedup of a mode over eager execution; arguments as for `latency_bounds`."""
    return _union([timings[EAGER].latency_us / timings[mode].latency_us for timings in hosts], width)


def _union(values: Sequence[float], width: float) -> tuple[float, float]:
    spread = math.exp(width)
    return min(values) / spread, max(values) * spread


def extrapolated_share(estimates: Sequence[Estimate]) -> float:
    """Share of the kernels' time that extrapolated kernels take, from 0 to 1."""
    outside = sum(estimate.us for estimate in estimates if not estimate.in_range)
    return outside / _total_us(estimates)


def kernel_width(estimates: Sequence[Estimate]) -> float:
    """Addition to the half-width of an interval for the kernels of a pass: that of each by its share of the time.

    Errors of kernels cancel in part, so CORRELATION of the mean half-width remains. Kernels that were measured hardly
    count, and a kernel far from any measured one counts by as much as its own interval is wider.

    Args:
        estimates: estimates of the kernels of a pass.
    """
    widths = (one.us * math.log(one.high_us / one.us) for one in estimates)
    return CORRELATION * sum(widths) / _total_us(estimates)


def speedup_width(eager: Sequence[KeyedEstimate], compiled: Sequence[KeyedEstimate]) -> float:
    """Addition to the half-width of a speedup's interval for the kernels of both passes.

    As `kernel_width` of the pass where it is larger, but a kernel that runs in both passes counts with the difference
    of its shares: if it takes longer than predicted, it takes longer in both.

    Args:
        eager: keys and estimates of the kernels of the eager pass.
        compiled: those of the compiled pass.
    """
    widths: dict[tuple[str, str], float] = {}
    shares: dict[tuple[str, str], list[float]] = {}
    for side, kernels in enumerate((eager, compiled)):
        total = _total_us([one for _, one in kernels])
        for key, one in kernels:
            widths[key] = math.log(one.high_us / one.us)
            shares.setdefault(key, [0.0, 0.0])[side] += one.us / total
    differences = [(widths[key], in_eager - in_compiled) for key, (in_eager, in_compiled) in shares.items()]
    more = sum(width * difference for width, difference in differences if difference > 0)
    less = -sum(width * difference for width, difference in differences if difference < 0)
    return CORRELATION * max(more, less)


def _total_us(estimates: Sequence[Estimate]) -> float:
    return max(1e-9, sum(estimate.us for estimate in estimates))
