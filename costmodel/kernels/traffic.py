"""How many bytes a kernel must move: what of its inputs anything needs, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.ir import DTYPE_BYTES, Graph, Op, Ref, operators
from costmodel.ir.op_table import Role


def traffic_bytes(graph: Graph) -> int:
    """Least memory traffic of a kernel: of each input what is needed of it, once, and every output.

    A part that is cut out of a computed value needs only that part of what it is computed from: a kernel that adds a
    bias to queries, keys and values and returns the queries reads a third of them.
    """
    needed = needed_elements(graph)
    read = sum(
        min(value.type.nbytes, round(needed.get(Ref(value.name), 0.0)) * DTYPE_BYTES[value.type.dtype])
        for value in graph.values
    )
    return read + sum(graph.type_of(ref).nbytes for ref in graph.outputs)


def needed_elements(graph: Graph) -> Mapping[Ref, float]:
    """How many elements of each value the outputs need; a value that none of them needs is left out."""
    whole: dict[Ref, float] = {ref: float(graph.type_of(ref).numel) for ref in graph.outputs}
    """By operators that compute, which read the same part, and as outputs."""
    parts: dict[Ref, float] = {}
    """By views, each of a part of its own."""

    def wanted(ref: Ref) -> float:
        return min(float(graph.type_of(ref).numel), max(whole.get(ref, 0.0), parts.get(ref, 0.0)))

    for op in reversed(graph.ops):
        outputs = [Ref(op.name, index) for index in range(len(op.types))]
        if operators.lookup(op).role is Role.VIEW:
            source = op.refs()[0]
            parts[source] = parts.get(source, 0.0) + sum(wanted(ref) for ref in outputs)
        else:
            share = max(wanted(ref) / max(1, graph.type_of(ref).numel) for ref in outputs)
            for ref in op.refs():
                whole[ref] = max(whole.get(ref, 0.0), _read(graph, op, ref, share))
    return {ref: wanted(ref) for ref in {*whole, *parts}}


def _read(graph: Graph, op: Op, ref: Ref, share: float) -> float:
    """Elements of an operand that a share of the results needs; all of one that every result may need."""
    size = float(graph.type_of(ref).numel)
    alone = operators.lookup(op).role is Role.EXTERN or size < op.type.numel
    return size if alone else size * share
