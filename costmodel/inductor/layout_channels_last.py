"""Values that Inductor lays out channels last because they are on the way to a convolution.

Whatever has four dimensions is meant, tokens by rows and columns as well as channels of images: then the rows lie side
by side in memory, and a layer norm over the features reads them from afar (`find_nodes_prefer_channels_last` and
`maybe_apply_channels_last_stride_order` in torch/_inductor). It is so decided where a value is kept in memory for how
much it reads: what only a product or a convolution wants kept lies as that wants it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costmodel.inductor.lowering import READS_TO_REALIZE_REUSED, most_reads
from costmodel.ir import Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role
from costmodel.ir.operators import CHANNELS_LAST, CUTTING, INSIDE
from costmodel.ir.strides import dense, layout_of

IN_PLACE = frozenset({"relu", "hardtanh"})
"""Activations that models compute in place, and that Inductor does not take apart."""


def with_preferred_orders(graph: Graph) -> Graph:
    """The graph with those values in channels-last order; a view that is kept for its reads is a copy of its own."""
    preferred = preferring(graph)
    made = [_laid_out(op, operators.lookup(op).role) if op.name in preferred else [op] for op in graph.ops]
    return replace(graph, ops=tuple(op for several in made for op in several))


def preferring(graph: Graph) -> frozenset[str]:
    """Names of those values."""
    users = graph.users()
    near = _near_convolutions(graph, users)
    made = {op.name: op for op in graph.ops}
    reads: dict[str, frozenset[str]] = {}
    """Of what is computed anew by each that reads it."""
    found: set[str] = set()
    for op in graph.ops:
        role = operators.lookup(op).role
        if role in (Role.EXTERN, Role.WINDOW) or op.base == INSIDE or op.arg("memory_format") == CHANNELS_LAST:
            for ref in op.refs():
                reads.pop(_base(ref.name, made), None)
        read = frozenset().union(*(reads.get(ref.name, frozenset((ref.name,))) for ref in op.refs()))
        if role is Role.VIEW and op.refs() and op.refs()[0].name in reads:
            reads[op.name] = read
            kept = len(users[op.name]) > 1 and len(read) > READS_TO_REALIZE_REUSED
        elif role in (Role.POINTWISE, Role.CONCAT):
            kept = len(read) > most_reads(_calls(op, users))
            if not kept:
                reads[op.name] = read
        else:
            kept = role is Role.WINDOW and operators.window_elements(op) > most_reads(_calls(op, users))
        one = len(op.types) == 1 or role is Role.WINDOW or op.base == "native_batch_norm"
        if kept and op.name in near and one and has_two_orders(op.type):
            reads.pop(op.name, None)
            found.add(op.name)
    return frozenset(found)


def _base(name: str, made: Mapping[str, Op]) -> str:
    """What a view is a view of, through views; any other value itself."""
    while name in made and operators.lookup(made[name]).role is Role.VIEW and made[name].refs():
        name = made[name].refs()[0].name
    return name


def _laid_out(op: Op, role: Role) -> list[Op]:
    kind = replace(op.type, layout="nhwc")
    if op.type == kind:
        return [op]
    if role is Role.WINDOW:  # a convolution that wants it so has a copy made, which is computed with it
        return [op]
    if role is not Role.VIEW:
        return [replace(op, types=(kind, *op.types[1:]))]
    view = replace(op, name=f"{op.name}.seen")
    return [view, Op(op.name, "clone", (("self", Ref(view.name)),), (kind,), op.module)]


def _calls(op: Op, users: Mapping[str, Sequence[Op]]) -> list[Op]:
    """What reads a value, once for each time that it does as Inductor takes operators apart.

    After an activation in place each part of it is cut off by a call of its own: PyTorch makes views anew when it takes
    changes in place out of a graph.
    """
    calls = [user for user in users[op.name] for _ in range(max(1, operators.lookup(user).uses))]
    if op.base in IN_PLACE:
        calls += [cut for cut in users[op.name] if cut.base in CUTTING and len(cut.types) > 1]
    return calls


def has_two_orders(kind: TensorType) -> bool:
    """Whether channels last is another order than the plain one, for a tensor of this shape."""
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
