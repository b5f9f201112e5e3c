"""In which order Inductor lays out what it computes elementwise: most of what it reads decides.

Eager execution gives a result the order of its first operand, be that a view of a transposed tensor. Inductor lets all
that a buffer reads vote on the order of its loops, and a draw makes it plain (`ComputedBuffer.get_fill_order` and
`pick_loop_order` in torch/_inductor). So the residuals behind a patch embedding, which is transposed, are plain from
the first sum on, and the layer norms that read them are kernels of one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from costmodel import ops
from costmodel.ir import Graph, Op, TensorType
from costmodel.ops import Role
from costmodel.strides import layout_of_view

Types = Mapping[str, tuple[TensorType, ...]]


@dataclass(frozen=True, slots=True)
class Votes:
    """How many tensors of full size a buffer reads in plain order, and how many in another."""

    plain: int
    other: int

    def __add__(self, more: Votes) -> Votes:
        return Votes(self.plain + more.plain, self.other + more.other)


def with_voted_orders(graph: Graph) -> Graph:
    """The graph with the orders that Inductor gives to what eager execution leaves strided, and to views of it."""
    types: dict[str, tuple[TensorType, ...]] = {value.name: (value.type,) for value in graph.values}
    inlined: dict[str, Votes] = {}
    """Of what one operator alone reads, and computes anew."""
    users = graph.users()
    made: list[Op] = []
    for op in graph.ops:
        votes = _votes(op, types, inlined) if ops.lookup(op).role is Role.POINTWISE else None
        if votes is not None and len(users[op.name]) == 1:
            inlined[op.name] = votes
        types[op.name] = _in_voted_order(graph, op, types, votes)
        made.append(replace(op, types=types[op.name]))
    return replace(graph, ops=tuple(made))


def _votes(op: Op, types: Types, inlined: Mapping[str, Votes]) -> Votes:
    """Those of an operator's operands; what it alone reads is computed with it, and votes by what it reads itself."""
    found = Votes(0, 0)
    for ref in op.refs():
        kind = types[ref.name][ref.index]
        if kind.shape == op.type.shape:
            found += inlined.get(ref.name, Votes(int(kind.layout == "nchw"), int(kind.layout == "strided")))
    return found


def _in_voted_order(graph: Graph, op: Op, types: Types, votes: Votes | None) -> tuple[TensorType, ...]:
    if votes is not None and op.type.layout == "strided" and votes.plain and votes.plain >= votes.other:
        return tuple(replace(kind, layout="nchw") for kind in op.types)
    if ops.lookup(op).role is Role.VIEW:
        ref = op.refs()[0]
        source = types[ref.name][ref.index]
        if source != graph.type_of(ref):
            return tuple(replace(kind, layout=layout_of_view(op, source, kind)) for kind in op.types)
    return op.types
