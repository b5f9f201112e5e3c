"""Strides of tensors: followed through views, and compared between operands of one kernel.

An elementwise kernel visits its tensors together. If their memory orders differ, all but one are read or written in
short runs, which can cost several times the traffic of contiguous access.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.ir import Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import View

Strides = tuple[int, ...]
VIEW_AS_TYPE = "view.dtype"
"""Overload of `view` that reinterprets bytes as another element type."""


def strides_of(graph: Graph, ref: Ref) -> Strides | None:
    """Strides of a value, in elements; None where the graph does not determine them."""
    made = {op.name: op for op in graph.ops}
    return _strides(graph, ref, made)


def _strides(graph: Graph, ref: Ref, made: Mapping[str, Op]) -> Strides | None:
    op, kind = made.get(ref.name), graph.type_of(ref)
    follow = _STRIDE_RULES.get(operators.lookup(op).view) if op else None
    if op is None or follow is None:
        return dense(kind)
    source = op.refs()[0]
    before = _strides(graph, source, made)
    return follow(op, graph.type_of(source), before, kind) if before is not None else dense(kind)


def dense(kind: TensorType) -> Strides | None:
    """Strides of a dense tensor in the layout of its type; None for `strided`."""
    return _dense(kind.shape, kind.layout)


@functools.lru_cache(maxsize=1 << 12)
def _dense(shape: tuple[int, ...], layout: str) -> Strides | None:
    if layout == "strided":
        return None
    order = tuple(range(len(shape)))
    if layout == "nhwc" and len(order) > 2:
        order = (0, *order[2:], 1)
    return dense_in(shape, order)


def dense_in(shape: Sequence[int], order: Sequence[int]) -> Strides:
    """Strides of a dense tensor whose dimensions lie in memory in this order, from the outermost to the innermost."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def shared_run(shape: Sequence[int], one: Strides, other: Strides) -> int:
    """Count consecutive elements of the first tensor that are consecutive in the second tensor too.

    Args:
        shape: shape of both tensors.
        one: strides of the tensor whose memory order the kernel follows.
        other: strides of the other tensor.
    """
    run = 1
    axes = sorted((axis for axis, size in enumerate(shape) if size > 1), key=lambda axis: one[axis])
    for axis in axes:
        if one[axis] != run or other[axis] != run:
            break
        run *= shape[axis]
    return run


def layout_of_channels(kind: TensorType, count: int) -> str:
    """Layout of a range of channels of a dense tensor: `strided` unless the range itself is dense."""
    return layout_of((kind.shape[0], count, *kind.shape[2:]), dense(kind))


def strides_through(op: Op, source: TensorType, before: Strides | None, kind: TensorType) -> Strides | None:
    """Strides of the result of a view; None where they are unknown.

    Args:
        op: the view.
        source: type of the viewed tensor.
        before: strides of the viewed tensor; None if unknown.
        kind: type of the result; its layout is ignored.
    """
    follow = _STRIDE_RULES.get(operators.lookup(op).view)
    return follow(op, source, before, kind) if follow is not None and before is not None else None


def read_through(op: Op, source: TensorType, before: Strides | None, kind: TensorType) -> Strides | None:
    """The same for loops that read through a view what it could not see in place: an innermost step is right."""
    if operators.lookup(op).view is View.RESHAPE and before is not None:
        return _cut(_chunks(source.shape, before), kind.shape, exactly=False)
    return strides_through(op, source, before, kind)


def layout_of(shape: Sequence[int], strides: Strides | None) -> str:
    """Name the layout that has these strides, `strided` if none; strides along a dimension of size one are ignored."""
    for layout in ("nchw", "nhwc") if len(shape) == 4 else ("nchw",):
        own = dense(TensorType("", tuple(shape), layout))
        if strides is None or own is None:
            continue
        if all(a == b for a, b, size in zip(strides, own, shape, strict=True) if size > 1):
            return layout
    return "strided"


def _number(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default


def _permuted(op: Op, _source: TensorType, before: Strides, _kind: TensorType) -> Strides | None:
    if op.base == "permute":
        dims = op.arg("dims")
        return tuple(before[_number(dim)] for dim in dims) if isinstance(dims, tuple) else None
    named = ("dim0", "dim1") if op.base == "transpose" else ("axis0", "axis1")
    one, other = (0, 1) if op.base == "t" else (_number(op.arg(name)) for name in named)
    strides = list(before)
    if len(strides) > 1:
        strides[one], strides[other] = strides[other], strides[one]
    return tuple(strides)


def _expanded(_op: Op, source: TensorType, before: Strides, kind: TensorType) -> Strides | None:
    new = len(kind.shape) - len(source.shape)
    grown = [0 if old != size else step for old, size, step in zip(source.shape, kind.shape[new:], before, strict=True)]
    return (*(0,) * new, *grown)


def _selected(op: Op, _source: TensorType, before: Strides, _kind: TensorType) -> Strides | None:
    strides = list(before)
    del strides[_number(op.arg("dim"))]
    return tuple(strides)


def _unchanged(_op: Op, _source: TensorType, before: Strides, kind: TensorType) -> Strides | None:
    return before if len(before) == len(kind.shape) else None


def _narrowed(op: Op, _source: TensorType, before: Strides, _kind: TensorType) -> Strides | None:
    strides = list(before)
    strides[_number(op.arg("dim"))] *= _number(op.arg("step"), 1)
    return tuple(strides)


def _reshaped(_op: Op, source: TensorType, before: Strides, kind: TensorType) -> Strides | None:
    """Strides in another shape; contiguous where the strides of the source force a copy."""
    if not kind.numel:
        return dense(kind)
    return _cut(_chunks(source.shape, before), kind.shape) or dense(kind)


def _chunks(shape: Sequence[int], strides: Strides) -> list[tuple[int, int]]:
    """Merge dimensions that are contiguous with each other: sizes, and the stride of their elements."""
    chunks: list[tuple[int, int]] = []
    for size, step in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if chunks and chunks[-1][1] == size * step:
            chunks[-1] = (chunks[-1][0] * size, step)
        else:
            chunks.append((size, step))
    return chunks


def _cut(chunks: list[tuple[int, int]], shape: Sequence[int], exactly: bool = True) -> Strides | None:
    """Strides of merged dimensions split into another shape (ATen's `computeStride`); None if impossible.

    Unless `exactly`, a dimension that spans several merged dimensions has the stride of the last.
    """
    strides: list[int] = []
    left, step = 1, 1
    for size in reversed(shape):
        if size == 1:
            strides.append(step * left)
            continue
        if left == 1 and chunks:
            left, step = chunks.pop()
        if left % size and exactly:
            return None
        strides.append(step)
        while left < size and chunks:
            left *= chunks.pop()[0]
        left, step = max(1, left // size), step * size
    return tuple(reversed(strides))


_STRIDE_RULES: Mapping[View | None, Callable[[Op, TensorType, Strides, TensorType], Strides | None]] = {
    View.IDENTITY: _unchanged,
    View.RESHAPE: _reshaped,
    View.PERMUTE: _permuted,
    View.NARROW: _narrowed,
    View.SELECT: _selected,
    View.EXPAND: _expanded,
}
"""Strides of a view's result by kind of view, from the operator, type and strides of the source, type of the result."""


@dataclass(frozen=True, slots=True)
class Walk:
    """Memory access of an elementwise operator.

    Attributes:
        run: number of elements that are consecutive in every tensor.
        hop: stride between successive accesses in the tensor with the shortest run.
        mixed: whether any tensor has another memory order than the result.
        unknown: whether the memory order of any tensor is unknown.
    """

    run: int
    hop: int
    mixed: bool
    unknown: bool


def walk_of(graph: Graph, op: Op) -> Walk:
    """Memory access of an elementwise operator to its result and operands of full size; of `cat`, to all operands."""
    operands = [ref for ref in op.refs() if op.base == "cat" or graph.type_of(ref).shape == op.type.shape]
    found = [(graph.type_of(ref).shape, strides_of(graph, ref)) for ref in operands]
    known = [(shape, strides) for shape, strides in found if strides is not None]
    order = dense(op.type)
    walk = Walk(op.type.numel, 1, mixed=False, unknown=order is None or len(known) < len(found))
    if order is None and known:
        order = known[0][1]
    for shape, strides in known:
        own = order if shape == op.type.shape else dense(replace(op.type, shape=shape))
        if own is None:
            continue
        run = shared_run(shape, own, strides)
        if run < min(walk.run, math.prod(shape)):
            walk = Walk(run, _hop(shape, own, strides), mixed=True, unknown=walk.unknown)
    return walk


def _hop(shape: Sequence[int], one: Strides, other: Strides) -> int:
    """Stride of the second tensor along the innermost dimension of the first."""
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    return other[min(axes, key=lambda axis: one[axis])] if axes else 1


def is_strided(op: Op) -> bool:
    """Whether an operator's result depends on the strides of its operand."""
    return operators.lookup(op).by_strides or op.op == VIEW_AS_TYPE


def with_pinned_strides(graph: Graph) -> Graph:
    """Insert `contiguous` before operators that depend on strides, so that they read the captured layout.

    A convolution may return channels_last where the meta device reported nchw; `contiguous` copies only in that case.
    """
    made: list[Op] = []
    for op in graph.ops:
        source = op.arg("self")
        if not is_strided(op) or not isinstance(source, Ref) or graph.type_of(source).layout != "nchw":
            made.append(op)
            continue
        pinned = Op(f"{op.name}.pinned", "contiguous", (("self", source),), (graph.type_of(source),), op.module)
        args = tuple((key, Ref(pinned.name) if key == "self" else value) for key, value in op.args)
        made += [pinned, replace(op, args=args)]
    return replace(graph, ops=tuple(made)).verify()


ORDER_KEPT = (View.IDENTITY, View.RESHAPE)
"""Views whose elements have the same order as before."""


def keeps_order(op: Op, source: TensorType) -> bool:
    """Whether a view shows all elements in the order of the viewed tensor."""
    view = operators.lookup(op).view
    if view is View.PERMUTE:  # a contiguous tensor stays contiguous if only dimensions of size one move
        plain = source.with_layout("nhwc" if source.layout == "nhwc" else "nchw")
        return layout_of(op.type.shape, strides_through(op, plain, dense(plain), op.type)) == "nchw"
    dense_layouts = op.type.layout != "strided" and source.layout != "strided"
    return (dense_layouts or view in ORDER_KEPT) and op.type.numel == source.numel
