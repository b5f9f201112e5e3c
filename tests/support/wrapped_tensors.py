"""Classes of tensors: one that wraps others as quantised weights do, one that hides its own, one with attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only


class Scaled(torch.Tensor):
    """Integers times a scale a row; every operator computes with the product, but `detach`, which wraps again."""

    held: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor, scale: torch.Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, held.shape, dtype=scale.dtype, device=held.device
        )

    def __init__(self, held: torch.Tensor, scale: torch.Tensor) -> None:
        self.held, self.scale = held, scale

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Scaled:
        """Quantise a matrix to 8 bits."""
        scale = tensor.abs().amax(1, keepdim=True) / 127
        return cls((tensor / scale).round().to(torch.int8), scale)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: Mapping[str, torch.Tensor], context: None, *_: object) -> Scaled:
        return cls(inner["held"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].held, args[0].scale)
        args, kwargs = tree_map_only(
            cls, lambda item: item.held.to(item.scale.dtype) * item.scale, (args, kwargs or {})
        )
        return func(*args, **kwargs)


class Hidden(torch.Tensor):
    """Tensor around another that no other code can find."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Hidden:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined, no-any-return]

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner)
        args, kwargs = tree_map_only(cls, lambda item: item.inner, (args, kwargs or {}))
        return func(*args, **kwargs)


class Packed(torch.nn.Parameter):
    """Parameter with an attribute that the model reads."""

    factor: float
