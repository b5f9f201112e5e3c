"""In which order eager execution lays out what the IR calls `strided`: what a kernel reads as it lies in memory.

An elementwise operator gives its result the order of its first operand of full size, be that a view of a transposed
tensor (`TensorIterator`, aten/src/ATen/TensorIterator.cpp): residuals behind a patch embedding stay transposed, every
sum walks across its operands, and every layer norm copies. What fused attention gives lies with the heads beside each
other, as the view that undoes it tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.ir import Graph, Op, TensorType, operators
from costmodel.ir.op_table import Role
from costmodel.ir.strides import Strides, dense, dense_in, strides_through

Order = tuple[int, ...]
"""Dimensions, from the outermost in memory to the innermost."""
TURNING = ("permute", "transpose", "swapaxes")


def memory_orders(graph: Graph) -> dict[str, Order]:
    """By operator, the order of its first result, where that is `strided`, fills its memory, and can be told."""
    undone = _undone(graph)
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
        order = undone.get(op.name) or _of_first_operand(graph, op, strides)
        if order is not None:
            found[op.name], strides[op.name] = order, dense_in(op.type.shape, order)
    return found


def turned(items: Sequence[int], order: Order) -> tuple[int, ...]:
    """One item a dimension, from the outermost in memory to the innermost."""
    return tuple(items[axis] for axis in order)


def inverse(order: Order) -> Order:
    """What turns memory's order back into that of the dimensions."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def undoes(op: Op, kind: TensorType, order: Order) -> bool:
    """Whether a view of a tensor of this type shows it as it lies in memory."""
    return op.base in TURNING and op.type.layout == "nchw" and op.type.shape == turned(kind.shape, order)


def _undone(graph: Graph) -> dict[str, Order]:
    """Orders of strided results that a view shows in plain order: that view's dimensions."""
    types = {op.name: op.type for op in graph.ops}
    found: dict[str, Order] = {}
    for op in graph.ops:
        if op.base not in TURNING or op.type.layout != "nchw":
            continue
        source = op.refs()[0]
        kind = types.get(source.name)
        if source.index or kind is None or kind.layout != "strided":
            continue
        axes = strides_through(op, kind, tuple(range(len(kind.shape))), op.type)  # which dimension ends up where
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
