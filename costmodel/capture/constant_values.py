"""Values of constants, which depend on neither inputs nor parameters: masks of ones, grids, shapes in tensors.

Meta tensors have no data, and a model that reads a constant would stop. Therefore results of factory functions, and
values computed from them, are also computed on the CPU, by operators of a closed list only. Views and writes need no
special treatment, because the real tensors share memory in the same way as the meta tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from costmodel.ir.pure_operators import COMPUTED

MOST_ELEMENTS = 1 << 20
"""Limit of the elements of a computed constant: constants that decide control flow are small."""


def memory_of(tensor: torch.Tensor) -> int:
    """Identity of a tensor's memory while any tensor on it is alive."""
    return int(tensor.untyped_storage()._cdata)


class Constants:
    """Real tensors by meta tensor; the meta tensors are not kept alive."""

    def __init__(self) -> None:
        self._values = WeakTensorKeyDictionary()
        self._lost: set[int] = set()

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Values of a tensor; None if they depend on data or were not computed."""
        if not tensor.is_meta:
            return tensor
        value: torch.Tensor | None = self._values.get(tensor)
        return None if memory_of(tensor) in self._lost else value

    def remember(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Store the values of a tensor, whose memory may have held unknown values before."""
        self._lost.discard(memory_of(tensor))
        self._values[tensor] = value

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Compute the real result of a call on meta tensors, if it depends on no data."""
        given, results = _tensors_in((args, kwargs)), _tensors_in(result)
        computed = self._compute(func, args, kwargs, [*given, *results])
        if computed is None and func._schema.is_mutable:
            written = results or given  # a call that returns anything returns the tensors that it writes
            self._lost.update(memory_of(tensor) for tensor in written if tensor.is_meta)
        for tensor, value in zip(results, computed or (), strict=False):
            self.remember(tensor, value)

    def _compute(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor]
    ) -> list[torch.Tensor] | None:
        if str(func) not in COMPUTED:
            return None
        values = {id(tensor): self.value_of(tensor) for tensor in _tensors_in((args, kwargs))}
        large = any(tensor.numel() > MOST_ELEMENTS for tensor in tensors)
        needless = not any(tensor.is_meta for tensor in tensors)
        if large or needless or any(value is None for value in values.values()):
            return None
        call = tree_map_only(torch.Tensor, lambda tensor: values[id(tensor)], (tuple(args), dict(kwargs)))
        options = {key: "cpu" if key == "device" else value for key, value in call[1].items()}
        try:
            return _tensors_in(func(*call[0], **options))
        except (RuntimeError, IndexError):  # the CPU has no kernel for it
            return None


def _tensors_in(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
