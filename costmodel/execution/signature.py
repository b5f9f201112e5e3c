"""Signature of inputs: inputs of one signature run on one program."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten

from costmodel.capture.inputs import Arguments

Signature = tuple[TreeSpec | None, tuple[Hashable, ...]]
"""Nesting of the inputs, None for positional tensors alone; shape, strides, dtype and device of each tensor, and type
and value of any other leaf."""


def signature_of(inputs: Arguments) -> Signature | None:
    """Signature of inputs; None if one of them has no hash."""
    if inputs.are_tensors():
        return None, tuple(map(_identity, inputs.args))
    leaves, spec = tree_flatten((inputs.args, inputs.kwargs))
    signature = spec, tuple(map(_identity, leaves))
    try:
        hash(signature)
    except TypeError:
        return None
    return signature


def _identity(leaf: Any) -> tuple[Any, ...]:
    """Properties of one leaf that a program depends on."""
    if isinstance(leaf, torch.Tensor):
        return tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device
    return type(leaf), leaf
