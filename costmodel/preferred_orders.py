"""Values that Inductor lays out channels last because they are on the way to a convolution.

Whatever has four dimensions is meant, tokens by rows and columns as well as channels of images: then the rows lie side
by side in memory, and a layer norm over the features reads them from afar (`find_nodes_prefer_channels_last` and
`maybe_apply_channels_last_stride_order` in torch/_inductor). It is so decided where a value is kept in memory for how
much it reads: what only a product or a convolution wants kept lies as that wants it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costmodel import ops
from costmodel.ir import Graph, Op, Ref, TensorType
from costmodel.ops import Role
from costmodel.realize import READS_TO_REALIZE_REUSED, most_reads
from costmodel.strides import dense, layout_of


def with_preferred_orders(graph: Graph) -> Graph:
    """The graph with those values in channels-last order; a view that is kept for its reads is a copy of its own."""
    users = graph.users()
    near = _near_convolutions(graph, users)
    reads: dict[str, frozenset[str]] = {}
    """Of what is computed anew by each that reads it."""
    made: list[Op] = []
    for op in graph.ops:
        role = ops.lookup(op).role
        found = frozenset().union(*(reads.get(ref.name, frozenset((ref.name,))) for ref in op.refs()))
        if role is Role.VIEW and op.refs() and op.refs()[0].name in reads:
            reads[op.name] = found
            kept = len(users[op.name]) > 1 and len(found) > READS_TO_REALIZE_REUSED
        elif role in (Role.POINTWISE, Role.CONCAT):
            kept = len(found) > most_reads(users[op.name])
            if not kept:
                reads[op.name] = found
        else:
            kept = False
        if kept and op.name in near and len(op.types) == 1 and _has_two_orders(op.type):
            reads.pop(op.name, None)
            made += _laid_out(op, role)
        else:
            made.append(op)
    return replace(graph, ops=tuple(made))


def _laid_out(op: Op, role: Role) -> list[Op]:
    kind = replace(op.type, layout="nhwc")
    if op.type == kind:
        return [op]
    if role is not Role.VIEW:
        return [replace(op, types=(kind,))]
    view = replace(op, name=f"{op.name}.seen")
    return [view, Op(op.name, "clone", (("self", Ref(view.name)),), (kind,), op.module)]


def _has_two_orders(kind: TensorType) -> bool:
    return len(kind.shape) == 4 and layout_of(kind.shape, dense(replace(kind, layout="nhwc"))) == "nhwc"


def _near_convolutions(graph: Graph, users: Mapping[str, Sequence[Op]]) -> set[str]:
    """What leads to a convolution, and what follows any of that up to the last; batched products pass nothing on."""
    near: set[str] = set()
    for op in reversed(graph.ops):
        leads = op.base != "bmm" and any(user.name in near for user in users[op.name])
        if op.base == "convolution" or leads:
            near.add(op.name)
    last = max((index for index, op in enumerate(graph.ops) if op.base == "convolution"), default=0)
    for op in graph.ops[:last]:
        if op.name in near:
            near |= {user.name for user in users[op.name] if user.base != "bmm"}
    return near
