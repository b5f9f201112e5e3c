"""Tensors on the meta device that stand for real ones, and questions about the tensors of a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._prims_common import get_computation_dtype, suggest_memory_format
from torch.utils._pytree import tree_leaves

from costmodel.capture.aliasing import type_of
from costmodel.zoo.placement import wraps_others

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def meta_like(tensor: Any) -> torch.Tensor:
    """Make a tensor of the same class, dtype and strides without data.

    A tensor that wraps others (`__tensor_flatten__`, as quantised weights) wraps tensors without data. Attributes are
    kept.
    """
    if wraps_others(tensor):
        names, context = tensor.__tensor_flatten__()
        held = {name: getattr(tensor, name) for name in names}
        inner = {name: meta_like(item) if isinstance(item, torch.Tensor) else item for name, item in held.items()}
        wrapper: torch.Tensor = type(tensor).__tensor_unflatten__(inner, context, tensor.shape, tensor.stride())
        return wrapper
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    if not acts_on_operators(type(tensor)):
        made = made if type(tensor) in _PLAIN else made.as_subclass(type(tensor))
        vars(made).update(vars(tensor))
    return made


def acts_on_operators(kind: type[torch.Tensor]) -> bool:
    """Whether a class of tensors replaces operators of torch."""
    return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def named_parts(name: str, tensor: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensor by its name or, if it wraps others, those at any depth, such as `fc.weight.scale`."""
    if not wraps_others(tensor):
        yield name, tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        if isinstance(held := getattr(tensor, part), torch.Tensor):
            yield from named_parts(f"{name}.{part}", held)


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


def is_plain_meta(tree: Any) -> bool:
    """Whether all tensors in nested arguments are meta tensors that wrap no others."""
    return all(tensor.is_meta and type(tensor) in _PLAIN for tensor in tensors_of(tree))


RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Functions of torch that run a recurrent layer."""
RECURRENT_ARGUMENTS = 9
"""Arguments of these functions for sequences of one length; packed sequences have another overload."""


def recurrent_results(args: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    """Results of a recurrent layer without data: the sequence (..., width of all directions), then its last states.

    Args:
        args: RECURRENT_ARGUMENTS arguments of a function of RECURRENT.
    """
    source, state, bidirectional = args[0], args[1], args[7]
    states = (state,) if isinstance(state, torch.Tensor) else tuple(state)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return source.new_empty((*source.shape[:-1], width)), *map(torch.empty_like, states)


def batch_norm_results(args: Sequence[Any]) -> tuple[torch.Tensor, ...] | None:
    """Results without data of batch norm in evaluation mode, as of torch's decomposition, which makes ten tensors more.

    None for any other call: in training, or of tensors whose memory order is not plain to see.

    Args:
        args: arguments of `aten.native_batch_norm`.
    """
    source, weight, bias, mean, variance, training = args[:6]
    if training or mean is None or variance is None or source.dim() < 2 or not is_plain_meta(args):
        return None
    channels = source.shape[1:2]
    alike = all(part is None or part.shape == channels for part in (weight, bias, mean, variance))
    dense = type_of(source).layout != "strided" and min(source.shape[1:]) > 1  # along one element any stride is right
    if not alike or not dense or not source.is_floating_point():
        return None
    statistics = (source.new_empty(channels, dtype=get_computation_dtype(source.dtype)) for _ in range(2))
    return torch.empty_like(source), *statistics
