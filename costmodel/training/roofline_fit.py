"""Fit of a device's roofline ceilings to measured kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.features import Roofline, anchor_flops
from costmodel.features.roofline import arithmetic_kind
from costmodel.kernels.kernel import Kernel

LARGE_TRAFFIC_BYTES = 64e6
"""Traffic above which a kernel counts for the fit of bandwidth: more than the second-level cache of an H200 holds.

A threshold of the fit, and no fact of the device. Where fewer than LEAST_LARGE kernels have so much traffic, as on a
device with a larger cache or less memory, the fastest kernel of any size sets the ceiling."""
LEAST_LARGE = 20


def fit_roofline(kernels: Sequence[Kernel], time_us: Sequence[float]) -> Roofline:
    """Ceilings that measured kernels come near.

    Bandwidth is the 95 % quantile over kernels of large traffic. A peak is the 99.5 % quantile over kernels that
    compute in a type, and the floor is the 1 % quantile of time.
    """
    times = np.asarray(time_us)
    traffic = np.array([kernel.traffic_bytes for kernel in kernels], dtype=float)
    large = traffic > LARGE_TRAFFIC_BYTES
    bandwidth = (
        np.quantile(traffic[large] / times[large], 0.95) if large.sum() >= LEAST_LARGE else np.max(traffic / times)
    )
    peaks: dict[str, list[float]] = {}
    for kernel, time in zip(kernels, times, strict=True):
        flops, kind = anchor_flops(kernel), arithmetic_kind(kernel.anchor)
        if flops and kind:
            precision = "tf32" if kernel.tf32 else kernel.anchor.type.dtype
            peaks.setdefault(f"{kind}.{precision}", []).append(flops / time)
    peak = {name: float(np.quantile(rates, 0.995)) for name, rates in peaks.items() if len(rates) >= 5}
    return Roofline(float(bandwidth), peak, float(np.quantile(times, 0.01)))
