"""SiblingConv convolutions of one pixel on one input, merged into one convolution whose result is cut into theirs.

With weights V and W: [V; W] x = [V x; W x], exactly, but for the order in which a kernel adds. The weights are joined
once, when the plan is applied. What is cut from a channels-last result is not dense: a library call would copy it
unasked, so the copy stands in the graph, where it is priced, and where Inductor can fuse it with what comes before. A
concatenation reads the pieces where they lie.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from costmodel.ir import Graph, Op, Ref
from costmodel.ir.builder import Emitter
from costmodel.ir.strides import layout_of_channels
from costmodel.rewrites.hoist_constants import constant_names

RELU = "relu"


@dataclass(frozen=True, slots=True)
class SiblingConv:
    """A convolution, and the ReLU that alone reads it, if there is one."""

    convolution: Op
    relu: Op | None

    @property
    def result(self) -> str:
        """What the rest of the graph reads."""
        return (self.relu or self.convolution).name


@dataclass(frozen=True, slots=True)
class Piece:
    """A sibling's channels: where they lie in the merged result, and a dense copy (the same, where that is dense)."""

    part: Ref
    copy: Ref


def find_sibling_convs(graph: Graph) -> dict[str, tuple[SiblingConv, ...]]:
    """Groups of two and more that can be merged, by the names of their first convolutions, in order."""
    users = graph.users()
    returned = {ref.name for ref in graph.outputs}
    constant = constant_names(graph)
    groups: dict[object, list[SiblingConv]] = {}
    for op in graph.ops:
        if not _mergeable(graph, op, constant):
            continue
        readers = users[op.name]
        relu = readers[0] if len(readers) == 1 and readers[0].base == RELU and op.name not in returned else None
        geometry = tuple(op.arg(key) for key in ("input", "stride", "padding", "dilation"))
        same = (geometry, isinstance(op.arg("bias"), Ref), op.type.dtype, op.type.layout, relu is None)
        groups.setdefault(same, []).append(SiblingConv(op, relu))
    return {group[0].convolution.name: tuple(group) for group in groups.values() if len(group) > 1}


def _mergeable(graph: Graph, op: Op, constant: Collection[str]) -> bool:
    weight, bias = op.arg("weight"), op.arg("bias")
    if op.base != "convolution" or op.arg("transposed") is not False or op.arg("groups") != 1:
        return False
    if not isinstance(weight, Ref) or op.name in constant:
        return False
    known = all(ref.name in constant for ref in (weight, bias) if isinstance(ref, Ref))
    shape = graph.type_of(weight).shape
    return known and len(shape) == 4 and shape[2:] == (1, 1)


def merge_sibling_convs(graph: Graph, only: Collection[str] = ()) -> Graph:
    """The graph with groups of siblings merged: those named by their first convolutions, or all.

    Args:
        graph: its batch norms folded, or few have a ReLU behind them, and its layouts decided.
        only: names as `find_sibling_convs` gives them; others are passed over.
    """
    groups = {name: group for name, group in find_sibling_convs(graph).items() if not only or name in only}
    if not groups:
        return graph
    constant = constant_names(graph)
    gone = {op.name for group in groups.values() for each in group for op in (each.convolution, each.relu) if op}
    users = graph.users()
    pieces: dict[str, Piece] = {}
    new_ops = [op for op in graph.ops if op.name in constant]  # first, for a later sibling's weight is needed early
    for op in graph.ops:
        if op.name in groups:
            made, found = _merged(graph, groups[op.name], users)
            new_ops += made
            pieces |= found
        elif op.name not in gone and op.name not in constant:
            new_ops.append(_reading(op, pieces))
    outputs = tuple(pieces[ref.name].part if ref.name in pieces else ref for ref in graph.outputs)
    return replace(graph, ops=tuple(new_ops), outputs=outputs).verify()


def _reading(op: Op, pieces: dict[str, Piece]) -> Op:
    """An operator that reads pieces: a concatenation where they lie, any other their dense copies."""

    def instead(ref: Ref) -> Ref:
        if ref.name not in pieces:
            return ref
        return pieces[ref.name].part if op.base == "cat" else pieces[ref.name].copy

    return op.reading(instead)


def _merged(
    graph: Graph, group: Sequence[SiblingConv], users: dict[str, list[Op]]
) -> tuple[list[Op], dict[str, Piece]]:
    """One convolution for a group, its ReLU, and a piece by the name of each sibling's result."""
    first = group[0].convolution
    emit = Emitter(graph, f"{first.name}.merged", _parent([each.convolution.module for each in group]))
    sizes = [each.convolution.type.shape[1] for each in group]
    kind = replace(first.type, shape=(first.type.shape[0], sum(sizes), *first.type.shape[2:]))
    joined = {key: _joined(emit, [each.convolution.arg(key) for each in group]) for key in ("weight", "bias")}
    args = tuple((key, joined.get(key, value)) for key, value in first.args)
    result = emit.add(first.op, kind, *args)
    if group[0].relu is not None:
        result = emit.add(group[0].relu.op, kind, ("self", result))
    pieces: dict[str, Piece] = {}
    start = 0
    for each, size in zip(group, sizes, strict=True):
        own = replace(kind, shape=(kind.shape[0], size, *kind.shape[2:]))
        seen = replace(own, layout=layout_of_channels(kind, size))
        part = emit.add("slice.Tensor", seen, ("self", result), ("dim", 1), ("start", start), ("end", start + size))
        copy = part
        if seen.layout == "strided" and any(user.base != "cat" for user in users[each.result]):
            order = "channels_last" if kind.layout == "nhwc" else "contiguous_format"
            copy = emit.add("clone", own, ("self", part), ("memory_format", f"torch.{order}"))
        pieces[each.result] = Piece(part, copy)
        start += size
    return emit.ops, pieces


def _joined(emit: Emitter, refs: Sequence[object]) -> Ref | None:
    """Weights, or biases, behind one another; None where there are none."""
    known = tuple(ref for ref in refs if isinstance(ref, Ref))
    if not known:
        return None
    kinds = [emit.type_of(ref) for ref in known]
    like = replace(kinds[0], shape=(sum(kind.shape[0] for kind in kinds), *kinds[0].shape[1:]), layout="nchw")
    return emit.add("cat", like, ("tensors", known), ("dim", 0))


def _parent(modules: Sequence[str]) -> str:
    """The module that holds all of some; the first of them, where only the model does."""
    names = zip(*(module.split(".") for module in modules), strict=False)
    common = takewhile(lambda parts: len(set(parts)) == 1, names)
    return ".".join(parts[0] for parts in common) or modules[0]
