"""Rewrite that merges sibling 1x1 convolutions, which read one input, into one convolution and slices its result.

With weights V and W: [V; W] x = [V x; W x], up to the order of summation in a kernel. The weights are concatenated
once, when the plan is applied. A slice of a channels_last result is not dense, and a library call would copy it. So the
copy is an operator of the graph, where its cost is predicted and Inductor can fuse it. A concatenation reads the slices
without a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from costmodel.ir import Graph, Op, Ref
from costmodel.ir.builder import Emitter
from costmodel.ir.strides import layout_of_channels
from costmodel.ir.subgraph import RELU
from costmodel.rewrites.hoist_constants import constant_names


@dataclass(frozen=True, slots=True)
class SiblingConv:
    """Convolution, with the ReLU that is its only reader, if there is one."""

    convolution: Op
    relu: Op | None

    @property
    def result(self) -> str:
        """Name of the value that the rest of the graph reads."""
        return (self.relu or self.convolution).name


@dataclass(frozen=True, slots=True)
class Piece:
    """Channels of a sibling: slice of the merged result, and a dense copy (the slice itself if dense)."""

    part: Ref
    copy: Ref


def find_sibling_convs(graph: Graph) -> dict[str, tuple[SiblingConv, ...]]:
    """Find groups of at least two siblings: name of the first convolution -> group, in order."""
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
    """Merge groups of sibling convolutions.

    Args:
        graph: graph with folded batch norms, else few convolutions precede a ReLU, and with final layouts.
        only: keys of `find_sibling_convs` to merge, others are ignored; empty for all.
    """
    groups = {name: group for name, group in find_sibling_convs(graph).items() if not only or name in only}
    if not groups:
        return graph
    constant = constant_names(graph)
    gone = {op.name for group in groups.values() for each in group for op in (each.convolution, each.relu) if op}
    users = graph.users()
    pieces: dict[str, Piece] = {}
    new_ops = [
        op for op in graph.ops if op.name in constant
    ]  # first: the merged convolution needs the weights of later siblings
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
    """Redirect reads of merged results: to slices in a concatenation, to dense copies in other operators."""

    def instead(ref: Ref) -> Ref:
        if ref.name not in pieces:
            return ref
        return pieces[ref.name].part if op.base == "cat" else pieces[ref.name].copy

    return op.reading(instead)


def _merged(
    graph: Graph, group: Sequence[SiblingConv], users: dict[str, list[Op]]
) -> tuple[list[Op], dict[str, Piece]]:
    """Operators of the merged convolution and its ReLU; name of each sibling's result -> piece."""
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
    """Concatenation of weights or biases; None if there are none."""
    known = tuple(ref for ref in refs if isinstance(ref, Ref))
    if not known:
        return None
    kinds = [emit.type_of(ref) for ref in known]
    like = replace(kinds[0], shape=(sum(kind.shape[0] for kind in kinds), *kinds[0].shape[1:]), layout="nchw")
    return emit.add("cat", like, ("tensors", known), ("dim", 0))


def _parent(modules: Sequence[str]) -> str:
    """Innermost module that contains all of some; the first of them if only the model does."""
    names = zip(*(module.split(".") for module in modules), strict=False)
    common = takewhile(lambda parts: len(set(parts)) == 1, names)
    return ".".join(parts[0] for parts in common) or modules[0]
