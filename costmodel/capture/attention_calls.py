"""Attention of a training step by the operators with gradients that a GPU runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

aten = torch.ops.aten
HEAD_MULTIPLE = 8
"""Flash attention pads head sizes to a multiple of it (`pad_last_dim` in ATen's attention.cpp)."""


def differentiable_attention(bound: Mapping[str, Any]) -> torch.Tensor:
    """Run attention by flash attention or, in float32 or with a mask, by memory-efficient attention.

    The order is ATen's `_fused_sdp_choice` on a GPU; the operators have meta kernels and gradients.

    Args:
        bound: arguments of `torch.nn.functional.scaled_dot_product_attention` by name.
    """
    query, key, value = bound["query"], bound["key"], bound["value"]
    mask, dropout = bound.get("attn_mask"), bound.get("dropout_p", 0.0)
    causal, scale = bound.get("is_causal", False), bound.get("scale")
    if query.shape[1] != key.shape[1]:  # grouped queries
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    if query.dtype is not torch.float32 and mask is None:
        size = query.shape[-1]
        missing = -size % HEAD_MULTIPLE
        if missing:
            query, key, value = (nn.functional.pad(one, (0, missing)) for one in (query, key, value))
        scale = size**-0.5 if scale is None else scale
        found: torch.Tensor = aten._scaled_dot_product_flash_attention.default(
            query, key, value, dropout, causal, False, scale=scale
        )[0]
        return found[..., :size] if missing else found
    bias = None if mask is None else _as_bias(mask, query, key)
    needs = any(tensor.requires_grad for tensor in (query, key, value)) and torch.is_grad_enabled()
    result: torch.Tensor = aten._scaled_dot_product_efficient_attention.default(
        query, key, value, bias, needs, dropout, causal, scale=scale
    )[0]
    return result


def _as_bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Mask as numbers that are added to the scores, in the shape of the scores."""
    if mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, float("-inf")).to(query.dtype)
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
