"""Values of what depends on neither inputs nor parameters: masks of ones, grids, shapes kept in tensors.

On meta tensors even these have no data, and a model that looks into them would stop. So whatever is made of nothing,
and what is made of that, is computed on the CPU beside the forward pass, by operators of a closed list alone; views and
writes need no care, as the real tensors share memory where their twins do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from costmodel.ir.pure_operators import COMPUTED

MOST_ELEMENTS = 1 << 20
"""Larger constants are not computed: what decides control flow is small."""


def memory_of(tensor: torch.Tensor) -> int:
    """What tensors on the same memory have in common, as long as one of them lives."""
    return int(tensor.untyped_storage()._cdata)


class Constants:
    """Real tensors behind meta tensors, which it does not keep alive."""

    def __init__(self) -> None:
        self._values = WeakTensorKeyDictionary()
        self._lost: set[int] = set()

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The values of a tensor; None if they depend on data, or were not computed."""
        if not tensor.is_meta:
            return tensor
        value: torch.Tensor | None = self._values.get(tensor)
        return None if memory_of(tensor) in self._lost else value

    def remember(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Notes the values of a tensor, which may lie where lost memory was freed."""
        self._lost.discard(memory_of(tensor))
        self._values[tensor] = value

    def follow(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Computes what a call on meta tensors returned, if it depends on no data."""
        given, results = _tensors_in((args, kwargs)), _tensors_in(result)
        computed = self._compute(func, args, kwargs, [*given, *results])
        if computed is None and func._schema.is_mutable:
            written = results or given  # what a call writes it returns, if it returns anything
            self._lost.update(memory_of(tensor) for tensor in written if tensor.is_meta)
        for tensor, value in zip(results, computed or (), strict=False):
            self.remember(tensor, value)

    def _compute(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[torch.Tensor]
    ) -> list[torch.Tensor] | None:
        values = {id(tensor): self.value_of(tensor) for tensor in _tensors_in((args, kwargs))}
        large = any(tensor.numel() > MOST_ELEMENTS for tensor in tensors)
        needless = not any(tensor.is_meta for tensor in tensors)
        listed = str(func) in COMPUTED
        if not listed or large or needless or any(value is None for value in values.values()):
            return None
        call = tree_map_only(torch.Tensor, lambda tensor: values[id(tensor)], (tuple(args), dict(kwargs)))
        options = {key: "cpu" if key == "device" else value for key, value in call[1].items()}
        try:
            return _tensors_in(func(*call[0], **options))
        except (RuntimeError, IndexError):  # the CPU has no kernel for it
            return None


def _tensors_in(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
