"""Runs of graphs and operators on meta tensors: what they do follows from their arguments' shapes; once is enough."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_VALUES = (int, bool, float, type(None))
_Kinds: TypeAlias = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """Operators that were called, and what was returned."""

    ops: tuple[str, ...]
    result: Any


class MetaRuns:
    """Runs of graphs and of operators by kinds of arguments."""

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, _Kinds], _Run] = {}

    def result(self, callee: Hashable, args: Sequence[Any], ops: list[str], run: Callable[[], Any]) -> Any:
        """Result of a graph or operator, which only runs if no run on such arguments is known.

        Args:
            callee: number of the graph, or the operator.
            args: its arguments.
            ops: list that gets the operators which it calls.
            run: function that runs it and adds these operators to `ops`.
        """
        kinds = _kinds(args)
        if kinds is None:
            return run()
        if known := self._known.get((callee, kinds)):
            ops.extend(known.ops)
            return _others(known.result)
        memory = _memory(args)
        result = run()
        if (_kinds(args), _memory(args)) == (kinds, memory) and _is_new(tree_leaves(result), memory):
            self._known[callee, kinds] = _Run(tuple(ops), _others(result))
        return result


def _kinds(values: Sequence[Any]) -> _Kinds | None:
    """Shapes and types of meta tensors, and other values; None if there is anything else."""
    found: list[Hashable] = []
    for value in values:
        if type(value) in _PLAIN and value.is_meta and value.layout is torch.strided:
            bits = value.requires_grad, value.is_conj(), value.is_neg()
            found.append((value.shape, value.stride(), value.storage_offset(), value.dtype, bits))
        elif type(value) in _VALUES:
            found.append((type(value), value))
        else:
            return None
    return tuple(found)


def _memory(values: Sequence[Any]) -> list[int]:
    """Memory of each tensor."""
    return [value.untyped_storage()._cdata for value in values if isinstance(value, torch.Tensor)]


def _is_new(results: Sequence[Any], given: Sequence[int]) -> bool:
    """Whether every result is a value or an ordinary tensor, alone on memory that was not given."""
    if _kinds(results) is None:
        return False
    made = _memory(results)
    tensors = [value for value in results if isinstance(value, torch.Tensor)]
    special = any(tensor.requires_grad or tensor.is_conj() or tensor.is_neg() for tensor in tensors)
    return not special and len({*made}) == len(made) and {*made}.isdisjoint(given)


def _others(result: Any) -> Any:
    """The same with other tensors: the model may reshape its own in place."""
    with torch._C._DisableTorchDispatch():
        return tree_map_only(torch.Tensor, _another, result)


def _another(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
