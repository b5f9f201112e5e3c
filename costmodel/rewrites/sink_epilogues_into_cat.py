"""Epilogues of convolutions computed where their results are concatenated, so that they are written into it at once.

No kernel that ATen has writes a convolution with its bias and ReLU into a part of a larger tensor:
`cudnn_convolution_relu.out` computes the result apart and copies it, and `cudnn_convolution.out`, which does write
where it is told, knows neither bias nor ReLU. But the kernel that Inductor makes of a concatenation reads and writes
the same bytes whether it adds a bias and takes a ReLU or not. So bias and ReLU leave the convolution and stand before
the concatenation; the convolution is a bare library call, on a stream of its own where that is faster.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from costmodel.inductor.decompositions import POINTWISE_CAT_INPUTS
from costmodel.ir import Graph, Op, Ref, TensorType
from costmodel.ir.builder import Emitter
from costmodel.ir.subgraph import RELU, is_fusible


def find_epilogues(graph: Graph) -> dict[str, dict[str, Op]]:
    """Concatenations of channels that Inductor computes in one kernel, and the convolutions before them.

    Returns:
        By the name of the concatenation, and by the name of the ReLU between: convolutions that it alone reads.
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
    """The graph with epilogues moved to concatenations: those that are named, or all.

    relu(conv(x, w, b)) = relu(conv(x, w) + b), but for rounding between the two.

    Args:
        graph: its batch norms folded, or few convolutions have an epilogue.
        only: names as `find_epilogues` gives them; others are passed over.
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
    """Convolutions whose epilogues have been moved: each is a unit apart from the concatenation that computes them."""
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
