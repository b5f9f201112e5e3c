"""Estimates of kernels of a training step by a predictor that has measured none of their group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from costmodel.features import Roofline, launches_of
from costmodel.kernels.equivalents import equivalent
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.other_precision import Chosen

FACTOR = 2.0
"""Factor from an estimate to the ends of its interval."""
OF_BOUND = {
    "foreach": 1.55,
    "batch_norm": 2.05,
    "batch_norm_backward": 1.8,
    "layer_norm_backward": 2.4,
    "max_pool2d_backward": 4.0,
    "avg_pool2d_backward": 11.0,
}
"""Time over the roofline bound by kind of kernel: medians of kernels on an H200. Others take OTHER times as long."""
OTHER = 1.8
LAUNCH_US = 6.0
"""Host time of each launch of a multi-tensor operator."""


def training_estimates(
    chosen: Chosen, predict: Callable[[Chosen], Sequence[Estimate]], roofline: Roofline
) -> list[Estimate]:
    """Estimates of kernels of a training step: of equivalent kernels, or a multiple of the roofline bound.

    Args:
        chosen: kernels and their relative depths in the model.
        predict: predictor of the equivalent kernels.
        roofline: ceilings of the device.
    """
    found = [equivalent(kernel) for kernel, _ in chosen]
    wanted = [(one.kernel, place) for one, (_, place) in zip(found, chosen, strict=True) if one is not None]
    known = iter(predict(wanted))
    estimates = []
    for one, (kernel, _) in zip(found, chosen, strict=True):
        if one is None:
            estimates.append(_by_bound(kernel, roofline))
            continue
        other = next(known)
        us = max(other.us * one.factor, roofline.bound_us(kernel))
        low_us, high_us = us / FACTOR, us * max(FACTOR, other.high_us / other.us)
        estimates.append(replace(other, us=us, low_us=low_us, high_us=high_us, in_range=False))
    return estimates


def _by_bound(kernel: Kernel, roofline: Roofline) -> Estimate:
    bound = roofline.bound_us(kernel)
    us = bound * OF_BOUND.get(kernel.kind, OTHER)
    host_us = LAUNCH_US * (1 + launches_of(kernel))
    return Estimate(us, bound, us * FACTOR, in_range=False, host_us=host_us)
