"""Least memory traffic of a kernel: the needed part of its inputs, and its outputs."""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.ir import DTYPE_BYTES, Graph, Op, Ref, operators
from costmodel.ir.op_table import Role


def traffic_bytes(graph: Graph) -> int:
    """Least memory traffic of a kernel in bytes: the needed part of each input, once, and every output.

    A slice of a computed value needs only that slice of its operands: a kernel that adds a bias to queries, keys and
    values and returns the queries reads a third of them.
    """
    return moved_bytes(graph, needed_elements(graph))


def moved_bytes(graph: Graph, needed: Mapping[Ref, float]) -> int:
    """The same from the elements of each value that are needed."""
    read = sum(
        min(value.type.nbytes, round(needed.get(Ref(value.name), 0.0)) * DTYPE_BYTES[value.type.dtype])
        for value in graph.values
    )
    return read + sum(graph.type_of(ref).nbytes for ref in graph.outputs)


def needed_elements(graph: Graph) -> Mapping[Ref, float]:
    """Elements of each value that the outputs need; a value that no output needs is absent."""
    # Operators that compute read the same part of a value, views each a part of its own.
    whole: dict[Ref, float] = {ref: float(graph.type_of(ref).numel) for ref in graph.outputs}
    parts: dict[Ref, float] = {}

    def wanted(ref: Ref) -> float:
        return min(float(graph.type_of(ref).numel), max(whole.get(ref, 0.0), parts.get(ref, 0.0)))

    for op in reversed(graph.ops):
        outputs = [Ref(op.name, index) for index in range(len(op.types))]
        if operators.is_view(op):
            source = op.refs()[0]
            parts[source] = parts.get(source, 0.0) + sum(wanted(ref) for ref in outputs)
        else:
            share = max(wanted(ref) / max(1, graph.type_of(ref).numel) for ref in outputs)
            for ref in op.refs():
                whole[ref] = max(whole.get(ref, 0.0), _read(graph, op, ref, share))
    return {ref: wanted(ref) for ref in {*whole, *parts}}


def _read(graph: Graph, op: Op, ref: Ref, share: float) -> float:
    """Elements of an operand that a share of the results needs; all if every result may need any element."""
    size = float(graph.type_of(ref).numel)
    alone = operators.lookup(op).role is Role.EXTERN or size < op.type.numel
    return size if alone else size * share
