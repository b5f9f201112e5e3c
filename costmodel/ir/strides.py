"""Where the elements of a tensor lie: strides followed through views, and how far two tensors agree on their order.

An elementwise kernel walks its tensors together. If they lie in different orders, all but one are read or written in
short runs, which can cost several times the traffic of a plain pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.ir import Graph, Op, Ref, TensorType

STRIDED = frozenset({"as_strided", "as_strided_scatter", "as_strided_copy", "view_as_complex", "view.dtype"})
"""Operators, or their overloads, that go by where elements lie in memory, and so hold for one layout."""

Strides = tuple[int, ...]
REGROUPED = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
"""Views of another shape, whose elements follow each other as before."""


def strides_of(graph: Graph, ref: Ref) -> Strides | None:
    """Elements from one neighbour to the next along each dimension; None where the graph does not tell."""
    made = {op.name: op for op in graph.ops}
    return _strides(graph, ref, made)


def _strides(graph: Graph, ref: Ref, made: Mapping[str, Op]) -> Strides | None:
    op, kind = made.get(ref.name), graph.type_of(ref)
    follow = _VIEWS.get(op.base) if op else None
    if op is None or follow is None:
        return dense(kind)
    source = op.refs()[0]
    before = _strides(graph, source, made)
    return follow(op, graph.type_of(source), before, kind) if before is not None else dense(kind)


def dense(kind: TensorType) -> Strides | None:
    """Strides of a tensor that fills its memory in a named order; None for a view of unknown order."""
    if kind.layout == "strided":
        return None
    order = tuple(range(len(kind.shape)))
    if kind.layout == "nhwc" and len(order) > 2:
        order = (0, *order[2:], 1)
    return dense_in(kind.shape, order)


def dense_in(shape: Sequence[int], order: Sequence[int]) -> Strides:
    """Strides of a tensor that fills its memory, its dimensions in an order, from the outermost to the innermost."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def shared_run(shape: Sequence[int], one: Strides, other: Strides) -> int:
    """How many elements in a row, as the first tensor lies in memory, lie in a row in the second too.

    Args:
        shape: of both.
        one: strides that set the order of the walk.
        other: strides of what is walked along.
    """
    run = 1
    axes = sorted((axis for axis, size in enumerate(shape) if size > 1), key=lambda axis: one[axis])
    for axis in axes:
        if one[axis] != run or other[axis] != run:
            break
        run *= shape[axis]
    return run


def layout_of_channels(kind: TensorType, count: int) -> str:
    """The layout of some neighbouring channels of a dense tensor: its own or `nchw` where they fill their memory."""
    return layout_of((kind.shape[0], count, *kind.shape[2:]), dense(kind))


def strides_through(op: Op, source: TensorType, before: Strides | None, kind: TensorType) -> Strides | None:
    """Strides of what a view gives; None where nothing tells.

    Args:
        op: the view.
        source: what it sees.
        before: strides of that.
        kind: what it gives, in whatever layout.
    """
    follow = _VIEWS.get(op.base)
    return follow(op, source, before, kind) if follow is not None and before is not None else None


def read_through(op: Op, source: TensorType, before: Strides | None, kind: TensorType) -> Strides | None:
    """The same for loops that read through a view what it could not see in place: an innermost step is right."""
    if op.base in REGROUPED and before is not None:
        return _cut(_chunks(source.shape, before), kind.shape, exactly=False)
    return strides_through(op, source, before, kind)


def layout_of(shape: Sequence[int], strides: Strides | None) -> str:
    """What strides are called: `strided` if they are not those of a dense tensor; a dimension of one has any."""
    for layout in ("nchw", "nhwc") if len(shape) == 4 else ("nchw",):
        own = dense(TensorType("", tuple(shape), layout))
        if strides is None or own is None:
            continue
        if all(a == b for a, b, size in zip(strides, own, shape, strict=True) if size > 1):
            return layout
    return "strided"


def _number(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default


def _transposed(op: Op, _source: TensorType, before: Strides, _kind: TensorType) -> Strides | None:
    named = ("dim0", "dim1") if op.base == "transpose" else ("axis0", "axis1")
    one, other = (0, 1) if op.base == "t" else (_number(op.arg(name)) for name in named)
    strides = list(before)
    if len(strides) > 1:
        strides[one], strides[other] = strides[other], strides[one]
    return tuple(strides)


def _permuted(op: Op, _source: TensorType, before: Strides, _kind: TensorType) -> Strides | None:
    dims = op.arg("dims")
    return tuple(before[_number(dim)] for dim in dims) if isinstance(dims, tuple) else None


def _expanded(_op: Op, source: TensorType, before: Strides, kind: TensorType) -> Strides | None:
    new = len(kind.shape) - len(source.shape)
    grown = [0 if old != size else step for old, size, step in zip(source.shape, kind.shape[new:], before, strict=True)]
    return (*(0,) * new, *grown)


def _selected(op: Op, _source: TensorType, before: Strides, _kind: TensorType) -> Strides | None:
    strides = list(before)
    del strides[_number(op.arg("dim"))]
    return tuple(strides)


def _kept(_op: Op, _source: TensorType, before: Strides, kind: TensorType) -> Strides | None:
    return before if len(before) == len(kind.shape) else None


def _sliced(op: Op, _source: TensorType, before: Strides, _kind: TensorType) -> Strides | None:
    strides = list(before)
    strides[_number(op.arg("dim"))] *= _number(op.arg("step"), 1)
    return tuple(strides)


def _regrouped(_op: Op, source: TensorType, before: Strides, kind: TensorType) -> Strides | None:
    """A view of another shape; where the elements cannot be seen so in place, they are copied into plain order."""
    return _cut(_chunks(source.shape, before), kind.shape) or dense(kind)


def _chunks(shape: Sequence[int], strides: Strides) -> list[tuple[int, int]]:
    """Runs of dimensions that lie in a row, as one each: sizes, and the steps between elements."""
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
    """Strides of runs that are cut into another shape (as ATen's `computeStride` does); None if they cannot be.

    If not exactly, a dimension that spans several runs has the step of the last.
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


_VIEWS: Mapping[str, Callable[[Op, TensorType, Strides, TensorType], Strides | None]] = {
    **dict.fromkeys(("transpose", "swapaxes", "t"), _transposed),
    "permute": _permuted,
    "expand": _expanded,
    **dict.fromkeys(("select", "unbind"), _selected),
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "narrow", "alias", "detach", "lift_fresh"), _kept),
    "slice": _sliced,
    **dict.fromkeys(REGROUPED, _regrouped),
}
"""How strides follow through a view: from the operator, what it sees and its strides, and the type of what it gives."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How an operator walks its tensors.

    Attributes:
        run: the most elements that lie in a row in all of them.
        hop: the step from element to element of the one that has the shortest row.
        mixed: whether any lies in another order than the one that sets the order.
        unknown: whether an order is unknown.
    """

    run: int
    hop: int
    mixed: bool
    unknown: bool


def walk_of(graph: Graph, op: Op) -> Walk:
    """How an elementwise operator walks its operands of full size beside its result; a concatenation, all operands."""
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
    """The second tensor's step along the dimension in which the first takes its smallest."""
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    return other[min(axes, key=lambda axis: one[axis])] if axes else 1


def is_strided(op: Op) -> bool:
    """Whether an operator's result depends on where its operand's elements lie."""
    return op.base in STRIDED or op.op in STRIDED


def with_pinned_strides(graph: Graph) -> Graph:
    """The graph with what strides are named of in the order that it was captured in, whatever kernels choose.

    A convolution may return channels-last order where the meta device said otherwise; `contiguous` copies only then.
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
