"""Rewrite that sinks bias and ReLU of convolutions into the concatenation of their results.

ATen has no kernel that writes a convolution with bias and ReLU into a slice of a larger tensor:
`cudnn_convolution_relu.out` computes a separate result and copies it, and `cudnn_convolution.out`, which does write in
place, supports neither bias nor ReLU. Inductor's kernel for a concatenation reads and writes the same bytes with or
without bias and ReLU. So these move in front of the concatenation, and the convolution becomes a bare library call.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from costmodel.inductor.decompositions import POINTWISE_CAT_INPUTS
from costmodel.ir import Graph, Op, Ref, TensorType
from costmodel.ir.builder import Emitter
from costmodel.ir.subgraph import RELU, is_fusible


def find_epilogues(graph: Graph) -> dict[str, dict[str, Op]]:
    """Find channel concatenations that Inductor compiles into one kernel, and the convolutions before them.

    Returns:
        Name of the concatenation -> name of the ReLU between -> convolution whose only reader is that ReLU.
    """
    users = graph.users()
    returned = {ref.name for ref in graph.outputs}
    made = {op.name: op for op in graph.ops}

    def convolution_of(relu: Op | None, reader: Op) -> Op | None:
        if relu is None or relu.base != RELU or users[relu.name] != [reader] or relu.name in returned:
            return None
        found = made.get(relu.refs()[0].name)
        alone = found is not None and users[found.name] == [relu] and found.name not in returned
        return found if found is not None and alone and is_fusible(found) else None

    places: dict[str, dict[str, Op]] = {}
    for op in graph.ops:
        if op.base != "cat" or op.arg("dim", 0) != 1 or len(op.refs()) > POINTWISE_CAT_INPUTS:
            continue
        found = {ref.name: convolution_of(made.get(ref.name), op) for ref in op.refs()}
        if known := {name: convolution for name, convolution in found.items() if convolution is not None}:
            places[op.name] = known
    return places


def sink_epilogues_into_cat(graph: Graph, only: Collection[str] = ()) -> Graph:
    """Move epilogues in front of concatenations: relu(conv(x, w, b)) = relu(conv(x, w) + b), up to rounding.

    Args:
        graph: graph with folded batch norms, else few convolutions have an epilogue.
        only: keys of `find_epilogues` to rewrite, others are ignored; empty for all.
    """
    places = {name: found for name, found in find_epilogues(graph).items() if not only or name in only}
    bare = {convolution.name for found in places.values() for convolution in found.values()}
    names = {name for found in places.values() for name in found}
    relus = {op.name: op for op in graph.ops if op.name in names}
    new_ops: list[Op] = []
    for op in graph.ops:
        if op.name in bare:
            new_ops.append(replace(op, args=tuple((key, None if key == "bias" else arg) for key, arg in op.args)))
            continue
        for name, convolution in places.get(op.name, {}).items():
            new_ops += _epilogue(graph, convolution, relus[name])
        if op.name not in relus:
            new_ops.append(op)
    return replace(graph, ops=tuple(new_ops)).verify()


def _epilogue(graph: Graph, convolution: Op, relu: Op) -> list[Op]:
    emit = Emitter(graph, f"{convolution.name}.bias", convolution.module)
    kind = TensorType(convolution.type.dtype, (convolution.type.shape[1], 1, 1))
    bias = emit.add("view", kind, ("self", convolution.arg("bias")), ("size", kind.shape))
    total = emit.add("add.Tensor", convolution.type, ("self", Ref(convolution.name)), ("other", bias))
    return [*emit.ops, relu.reading(lambda _: total)]


def bare_convolutions(graph: Graph) -> frozenset[str]:
    """Names of convolutions whose epilogues were sunk into a concatenation; each is a block of its own."""
    users = graph.users()

    def only_reader(op: Op, base: str) -> Op | None:
        readers = users[op.name]
        return readers[0] if len(readers) == 1 and readers[0].base == base else None

    found = set()
    for op in graph.ops:
        if op.base == "convolution" and op.arg("bias") is None and len(op.type.shape) == 4:
            total = only_reader(op, "add")
            relu = only_reader(total, RELU) if total is not None else None
            if relu is not None and only_reader(relu, "cat") is not None:
                found.add(op.name)
    return frozenset(found)
