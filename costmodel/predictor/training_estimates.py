"""Estimates of kernels of a training step by a predictor that has measured none of their group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from costmodel.features import Roofline, launches_of
from costmodel.features.backward import FOREACH
from costmodel.kernels.equivalents import equivalent
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.other_precision import Chosen
from costmodel.predictor.serial_blocks import BATCH_NORMS, batch_norm_us, foreach_us

FACTOR = 2.0
"""Factor from an estimate to the ends of its interval."""
OF_BOUND = {
    "layer_norm_backward": 2.4,
    "max_pool2d_backward": 4.0,
    "avg_pool2d_backward": 11.0,
}
"""Time over the roofline bound by kind of kernel: medians of kernels on an H200. Others take OTHER times as long."""
OTHER = 1.8
LAUNCH_US = 6.0
"""Host time of each launch of a multi-tensor operator."""


def training_estimates(
    chosen: Chosen, predict: Callable[[Chosen], Sequence[Estimate]], roofline: Roofline, multiprocessors: int
) -> list[Estimate]:
    """Estimates of kernels of a training step: of equivalent kernels, of their blocks, or of the roofline bound.

    Args:
        chosen: kernels and their relative depths in the model.
        predict: predictor of the equivalent kernels.
        roofline: ceilings of the device.
        multiprocessors: multiprocessors of the device.
    """
    found = [equivalent(kernel) for kernel, _ in chosen]
    wanted = [(one.kernel, place) for one, (_, place) in zip(found, chosen, strict=True) if one is not None]
    known = iter(predict(wanted))
    estimates = []
    for one, (kernel, _) in zip(found, chosen, strict=True):
        if one is None:
            estimates.append(_by_bound(kernel, roofline, multiprocessors))
            continue
        other = next(known)
        us = other.us * one.factor
        low_us, high_us = us / FACTOR, us * max(FACTOR, other.high_us / other.us)
        estimates.append(replace(other, us=us, low_us=low_us, high_us=high_us, in_range=False))
    return estimates


def _by_bound(kernel: Kernel, roofline: Roofline, multiprocessors: int) -> Estimate:
    bound = roofline.bound_us(kernel)
    if (costs := BATCH_NORMS.get(kernel.kind)) is not None:
        us = batch_norm_us(kernel, costs, roofline, multiprocessors)
    elif kernel.kind == FOREACH:
        us = foreach_us(kernel, roofline)
    else:
        us = bound * OF_BOUND.get(kernel.kind, OTHER)
    host_us = LAUNCH_US * (1 + launches_of(kernel))
    return Estimate(us, min(bound, us / FACTOR), us * FACTOR, in_range=False, host_us=host_us)
