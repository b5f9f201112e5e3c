"""Bounds of 90 % prediction intervals: over the hosts that an interval covers, widened for extrapolated kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from costmodel.predictor.predictor import Estimate
from costmodel.report.types import EAGER
from costmodel.timeline.queue import Timing

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


def extrapolated_share(estimates: Sequence[Estimate], whole_us: float = 0.0) -> float:
    """Share of the time that extrapolated kernels take, from 0 to 1.

    Args:
        estimates: estimates of the kernels of a pass.
        whole_us: time of the pass; the sum of its kernels if that is longer, or for 0.
    """
    outside = sum(estimate.us for estimate in estimates if not estimate.in_range)
    return outside / _whole(estimates, whole_us)


def extrapolation_width(estimates: Sequence[Estimate], whole_us: float) -> float:
    """Addition to the half-width of an interval for extrapolated kernels: the width of each by its share of the time.

    Where the host decides the latency, kernels of little device time change it little, however uncertain they are.

    Args:
        estimates: estimates of the kernels of a pass.
        whole_us: latency of the pass.
    """
    outside = (one.us * math.log(one.high_us / one.us) for one in estimates if not one.in_range)
    return sum(outside) / _whole(estimates, whole_us)


def _whole(estimates: Sequence[Estimate], whole_us: float) -> float:
    return max(whole_us, sum(estimate.us for estimate in estimates), 1e-9)
