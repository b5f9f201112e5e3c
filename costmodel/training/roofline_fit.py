"""Roofline ceilings of a device, fitted to measured kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costmodel.features import CONVOLUTIONS, Roofline, anchor_flops
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.traffic import traffic_bytes

CACHE_BYTES = 64e6
"""More than an H200's second-level cache holds: a kernel that moves so much goes by the bandwidth of memory."""


def fit_roofline(kernels: Sequence[Kernel], time_us: Sequence[float]) -> Roofline:
    """Ceilings of the device, as the measured kernels come near them.

    Bandwidth is what all but the fastest 5 % of the kernels with more traffic than the second-level cache holds stay
    under, peaks what all but the fastest half percent do that compute in a type, and the floor is what 1 % stay under.
    """
    times = np.asarray(time_us)
    traffic = np.array([traffic_bytes(kernel.graph) for kernel in kernels], dtype=float)
    large = traffic > CACHE_BYTES
    bandwidth = np.quantile(traffic[large] / times[large], 0.95) if large.sum() >= 20 else np.max(traffic / times)
    peaks: dict[str, list[float]] = {}
    for kernel, time in zip(kernels, times, strict=True):
        flops = anchor_flops(kernel)
        if flops:
            kind = "conv" if kernel.anchor.base in CONVOLUTIONS else "matmul"
            peaks.setdefault(f"{kind}.{kernel.anchor.type.dtype}", []).append(flops / time)
    peak = {name: float(np.quantile(rates, 0.995)) for name, rates in peaks.items() if len(rates) >= 5}
    return Roofline(float(bandwidth), peak, float(np.quantile(times, 0.01)))
