"""Random weights that let something through: else outputs vanish, and no comparison of them says anything."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TINY = 1e-3
"""Weights that are all smaller were meant to be learned first: heads of zeros, scales of 1e-6 of residual branches."""
SPREAD = 0.02
"""Standard deviation of a matrix that is drawn anew, as vision transformers initialise theirs."""


def enliven(module: nn.Module, inputs: Any) -> None:
    """Weights that are zero or tiny are made ordinary; batch norm takes its statistics from one pass over `inputs`.

    The module stays in evaluation mode. Where the pass fails in training mode (a single value a channel has no
    variance), the statistics stay as they were made.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not parameter.is_floating_point() or name.endswith("bias") or parameter.abs().amax() > TINY:
                continue
            if parameter.numel() == max(parameter.shape, default=1):
                parameter.fill_(1.0)
            else:
                parameter.normal_(std=SPREAD)
        norms = [
            child
            for child in module.modules()
            if isinstance(child, nn.modules.batchnorm._BatchNorm) and child.track_running_stats
        ]
        if norms:
            _take_statistics(module, norms, inputs)


def _take_statistics(module: nn.Module, norms: list[nn.modules.batchnorm._BatchNorm], inputs: Any) -> None:
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the mean over all passes: here, of the one
        norm.train()
    try:
        module(**inputs) if isinstance(inputs, dict) else module(*inputs)
        if not all(norm.running_var.isfinite().all() for norm in norms if norm.running_var is not None):
            raise ValueError("the statistics overflow")
    except (RuntimeError, ValueError):
        for norm in norms:
            norm.reset_running_stats()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
