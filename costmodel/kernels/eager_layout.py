"""Memory order of `strided` results in eager execution.

A pointwise operator gives its result the memory order of its first operand of full size, even of a transposed view
(`TensorIterator`, aten/src/ATen/TensorIterator.cpp). Residuals after a patch embedding therefore stay transposed, every
sum reads operands in different orders, and every layer norm copies. The result of fused attention has the memory order
in which the view after it is contiguous.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.ir import Graph, Op, TensorType, operators
from costmodel.ir.op_table import Role, View
from costmodel.ir.strides import Strides, dense, dense_in, strides_through

Order = tuple[int, ...]
"""Dimensions, from the outermost in memory to the innermost."""


def memory_orders(graph: Graph) -> dict[str, Order]:
    """Memory orders of first results that are `strided` and dense, by operator, where they are known."""
    shown = _shown_by_views(graph)
    strides: dict[str, Strides | None] = {value.name: dense(value.type) for value in graph.values}
    found: dict[str, Order] = {}
    for op in graph.ops:
        if operators.lookup(op).role is Role.VIEW:
            source = op.refs()[0]
            before = strides[source.name] if source.index == 0 else None
            strides[op.name] = strides_through(op, graph.type_of(source), before, op.type)
            continue
        strides[op.name] = dense(op.type)
        if op.type.layout != "strided":
            continue
        order = shown.get(op.name) or _of_first_operand(graph, op, strides)
        if order is not None:
            found[op.name], strides[op.name] = order, dense_in(op.type.shape, order)
    return found


def permuted(items: Sequence[int], order: Order) -> tuple[int, ...]:
    """Permute items, one a dimension, to memory order."""
    return tuple(items[axis] for axis in order)


def inverse(order: Order) -> Order:
    """Permutation from memory order back to the order of the dimensions."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def shows_memory_order(op: Op, kind: TensorType, order: Order) -> bool:
    """Whether a view shows a tensor of this type and memory order contiguously."""
    return _is_contiguous_permutation(op) and op.type.shape == permuted(kind.shape, order)


def _is_contiguous_permutation(op: Op) -> bool:
    return operators.lookup(op).view is View.PERMUTE and op.type.layout == "nchw"


def _shown_by_views(graph: Graph) -> dict[str, Order]:
    """Memory orders of strided results that a view shows contiguously: the dimensions of that view."""
    types = {op.name: op.type for op in graph.ops}
    found: dict[str, Order] = {}
    for op in graph.ops:
        if not _is_contiguous_permutation(op):
            continue
        source = op.refs()[0]
        kind = types.get(source.name)
        if source.index or kind is None or kind.layout != "strided":
            continue
        axes = strides_through(op, kind, tuple(range(len(kind.shape))), op.type)  # new position -> dimension
        if axes is not None:
            found[source.name] = axes
    return found


def _of_first_operand(graph: Graph, op: Op, strides: Mapping[str, Strides | None]) -> Order | None:
    if operators.lookup(op).role is not Role.POINTWISE:
        return None
    whole = (ref for ref in op.refs() if graph.type_of(ref).shape == op.type.shape)
    first = next(whole, None)
    before = strides.get(first.name) if first is not None and first.index == 0 else None
    if before is None:
        return None
    order = tuple(sorted(range(len(before)), key=lambda axis: -before[axis]))
    return None if 0 in before else order
