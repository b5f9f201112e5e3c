"""Memory order of pointwise results in Inductor: the majority of their reads decides.

Eager execution gives a result the memory order of its first operand, even of a transposed view. In Inductor all reads
of a buffer vote on the order of its loops, and a tie makes it contiguous (`ComputedBuffer.get_fill_order` and
`pick_loop_order` in torch/_inductor). Residuals after a patch embedding, which is transposed, are therefore contiguous
once most of their addends are, and layer norms that read them need one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.inductor.compilation import Compilation
from costmodel.inductor.lowering import most_reads
from costmodel.ir import Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role
from costmodel.ir.operators import is_view
from costmodel.ir.strides import Strides, dense, layout_of, strides_through

ORDERS = ("nchw", "strided")
"""Layouts that vote for contiguous loops, and for another order."""
Types = Mapping[str, tuple[TensorType, ...]]


@dataclass(frozen=True, slots=True)
class Votes:
    """Reads of a buffer: contiguous tensors of full size, tensors of full size in another order, all.

    Attributes:
        contiguous: contiguous tensors of full size.
        other: tensors of full size in another order.
        reads: all reads.
    """

    contiguous: frozenset[Ref] = frozenset()
    other: frozenset[Ref] = frozenset()
    reads: frozenset[Ref] = frozenset()

    def __or__(self, more: Votes) -> Votes:
        return Votes(self.contiguous | more.contiguous, self.other | more.other, self.reads | more.reads)


def choose_loop_orders(compilation: Compilation) -> Compilation:
    """Decide the memory order of pointwise results that are strided in eager execution, and of views of them."""
    graph, users = compilation.graph, compilation.users
    types: dict[str, tuple[TensorType, ...]] = {value.name: (value.type,) for value in graph.values}
    strides = {value.name: dense(value.type) for value in graph.values}
    inlined: dict[str, Votes] = {}  # votes of values that are not realized
    made: list[Op] = []
    for op in graph.ops:
        votes = _votes(op, types, inlined) if operators.lookup(op).role is Role.POINTWISE else None
        if votes is not None and len(votes.reads) <= most_reads(users[op.name]):
            inlined[op.name] = votes
        strides[op.name] = _strides(op, types, strides)
        types[op.name] = _in_voted_order(op, votes, strides[op.name])
        if strides[op.name] is None:
            strides[op.name] = dense(types[op.name][0])
        made.append(op.with_types(types[op.name]))
    return compilation.with_ops(made)


def _votes(op: Op, types: Types, inlined: Mapping[str, Votes]) -> Votes:
    """Votes of the operands of an operator; a value that is not realized votes by its own reads."""
    found = Votes()
    for ref in op.refs():
        kind = types[ref.name][ref.index]
        own = frozenset([ref])
        contiguous, other = (own if kind.shape == op.type.shape and kind.layout == name else () for name in ORDERS)
        found |= inlined.get(ref.name, Votes(frozenset(contiguous), frozenset(other), own))
    return found


def _strides(op: Op, types: Types, strides: Mapping[str, Strides | None]) -> Strides | None:
    """Strides of a view; None for other operators, and where they are unknown."""
    if not is_view(op) or not op.refs():
        return None
    ref = op.refs()[0]
    source = types[ref.name][ref.index]
    return strides_through(op, source, dense(source) if ref.index else strides[ref.name], op.type)


def _in_voted_order(op: Op, votes: Votes | None, strides: Strides | None) -> tuple[TensorType, ...]:
    if (
        votes is not None
        and op.type.layout == "strided"
        and votes.contiguous
        and len(votes.contiguous) >= len(votes.other)
    ):
        return tuple(kind.with_layout("nchw") for kind in op.types)
    if strides is not None and len(op.types) == 1:
        return (op.type.with_layout(layout_of(op.type.shape, strides)),)
    return op.types
