"""Random weights without vanishing activations, so that outputs can be compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TINY = 1e-3
"""Threshold for tensors of tiny weights: heads of zeros, residual scales of 1e-6."""
SPREAD = 0.02
"""Standard deviation of replaced weights, the initialisation of vision transformers."""


def replace_tiny_weights(module: nn.Module, inputs: Any) -> None:
    """Replace weights that are zero or tiny, and set statistics of batch norm from one pass over `inputs`.

    The module stays in evaluation mode. If the pass fails in training mode (a single value a channel has no variance),
    the statistics are reset.
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
        norm.momentum = None  # cumulative mean, here over one pass
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
