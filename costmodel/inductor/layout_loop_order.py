"""In which order Inductor lays out what it computes elementwise: most of what it reads decides.

Eager execution gives a result the order of its first operand, be that a view of a transposed tensor. Inductor lets all
that a buffer reads vote on the order of its loops, and a draw makes it plain (`ComputedBuffer.get_fill_order` and
`pick_loop_order` in torch/_inductor). So the residuals behind a patch embedding, which is transposed, are plain as soon
as most that they are a sum of is, and the layer norms that read them are kernels of one pass from there on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from costmodel.inductor.lowering import most_reads
from costmodel.ir import Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role
from costmodel.ir.strides import Strides, dense, layout_of, strides_through

ORDERS = ("nchw", "strided")
"""What the orders of those are called that vote: for a plain one, and for another."""
Types = Mapping[str, tuple[TensorType, ...]]


@dataclass(frozen=True, slots=True)
class Votes:
    """The tensors of full size that a buffer reads in plain order, those in another, and all that it reads."""

    plain: frozenset[Ref] = frozenset()
    other: frozenset[Ref] = frozenset()
    reads: frozenset[Ref] = frozenset()

    def __or__(self, more: Votes) -> Votes:
        return Votes(self.plain | more.plain, self.other | more.other, self.reads | more.reads)


def with_voted_orders(graph: Graph) -> Graph:
    """The graph with the orders that Inductor gives to what eager execution leaves strided, and to views of it."""
    types: dict[str, tuple[TensorType, ...]] = {value.name: (value.type,) for value in graph.values}
    strides = {value.name: dense(value.type) for value in graph.values}
    inlined: dict[str, Votes] = {}
    """Of what is computed anew by each that reads it."""
    users = graph.users()
    made: list[Op] = []
    for op in graph.ops:
        votes = _votes(op, types, inlined) if operators.lookup(op).role is Role.POINTWISE else None
        if votes is not None and len(votes.reads) <= most_reads(users[op.name]):
            inlined[op.name] = votes
        strides[op.name] = _strides(op, types, strides)
        types[op.name] = _in_voted_order(op, votes, strides[op.name])
        if strides[op.name] is None:
            strides[op.name] = dense(types[op.name][0])
        made.append(replace(op, types=types[op.name]))
    return replace(graph, ops=tuple(made))


def _votes(op: Op, types: Types, inlined: Mapping[str, Votes]) -> Votes:
    """Those of an operator's operands; what is computed with it votes by what it reads itself."""
    found = Votes()
    for ref in op.refs():
        kind = types[ref.name][ref.index]
        own = frozenset([ref])
        plain, other = (own if kind.shape == op.type.shape and kind.layout == name else () for name in ORDERS)
        found |= inlined.get(ref.name, Votes(frozenset(plain), frozenset(other), own))
    return found


def _strides(op: Op, types: Types, strides: Mapping[str, Strides | None]) -> Strides | None:
    """Strides of a view; None of what is none, and where nothing tells."""
    if operators.lookup(op).role is not Role.VIEW or not op.refs():
        return None
    ref = op.refs()[0]
    return strides_through(op, types[ref.name][ref.index], strides[ref.name], op.type)


def _in_voted_order(op: Op, votes: Votes | None, strides: Strides | None) -> tuple[TensorType, ...]:
    if votes is not None and op.type.layout == "strided" and votes.plain and len(votes.plain) >= len(votes.other):
        return tuple(replace(kind, layout="nchw") for kind in op.types)
    if strides is not None and len(op.types) == 1:
        return (replace(op.type, layout=layout_of(op.type.shape, strides)),)
    return op.types
