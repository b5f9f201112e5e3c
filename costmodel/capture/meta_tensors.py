"""Tensors on the meta device that stand for real ones, and questions about the tensors of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.utils._pytree import tree_leaves


def meta_like(tensor: torch.Tensor) -> torch.Tensor:
    """Make a tensor of the same dtype and strides without data."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """Tensors in nested arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def has_meta(args: Sequence[Any]) -> bool:
    """Whether arguments contain the meta device or a tensor on it."""
    leaves = tree_leaves(args)
    return any(leaf.is_meta if isinstance(leaf, torch.Tensor) else leaf == torch.device("meta") for leaf in leaves)


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Whether torch treats the strides of a tensor as channels_last."""
    return tensor.dim() == 4 and suggest_memory_format(tensor) is torch.channels_last
