"""Values that Inductor realizes in channels_last because they lead to a convolution.

The rule holds for any tensor of four dimensions, also for tokens in rows and columns; a layer norm over their features
then reads with large strides (`find_nodes_prefer_channels_last` and `maybe_apply_channels_last_stride_order` in
torch/_inductor). It applies to values that are realized for the number of their reads; a value realized for a matmul or
convolution gets the layout that the library call requires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from costmodel.inductor.compilation import Compilation
from costmodel.inductor.lowering import READS_TO_REALIZE_REUSED, most_reads
from costmodel.ir import Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role, View
from costmodel.ir.operators import CHANNELS_LAST, CONVOLUTION_INPUT_COPY, is_view
from costmodel.ir.strides import dense, layout_of


def prefer_channels_last(compilation: Compilation) -> Compilation:
    """Convert these values to channels_last, if convolutions are; a view that is realized becomes a copy."""
    if compilation.channels_last is None:
        return compilation
    preferred = compilation.analysis(preferred_values)
    ops = compilation.graph.ops
    made = [_converted(op, operators.lookup(op).role) if op.name in preferred else [op] for op in ops]
    return compilation.with_ops([op for several in made for op in several])


def preferred_values(compilation: Compilation) -> frozenset[str]:
    """Names of the values that Inductor realizes in channels_last."""
    graph, made, users = compilation.graph, compilation.producers, compilation.users
    near = _near_convolutions(graph, users)
    reads: dict[str, frozenset[str]] = {}  # buffers that recomputing an unrealized value reads
    found: set[str] = set()
    for op in graph.ops:
        role = operators.lookup(op).role
        if (
            role in (Role.EXTERN, Role.WINDOW)
            or op.base == CONVOLUTION_INPUT_COPY
            or op.arg("memory_format") == CHANNELS_LAST
        ):
            for ref in op.refs():
                reads.pop(_base(ref.name, made), None)
        read = frozenset().union(*(reads.get(ref.name, frozenset((ref.name,))) for ref in op.refs()))
        if role is Role.VIEW and op.refs() and op.refs()[0].name in reads:
            reads[op.name] = read
            realized = len(users[op.name]) > 1 and len(read) > READS_TO_REALIZE_REUSED
        elif role in (Role.POINTWISE, Role.CONCAT):
            realized = len(read) > most_reads(_calls(op, users))
            if not realized:
                reads[op.name] = read
        else:
            realized = role is Role.WINDOW and operators.window_elements(op) > most_reads(_calls(op, users))
        one = len(op.types) == 1 or role is Role.WINDOW or op.base == "native_batch_norm"
        if realized and op.name in near and one and has_two_orders(op.type):
            reads.pop(op.name, None)
            found.add(op.name)
    return frozenset(found)


def _base(name: str, made: Mapping[str, Op]) -> str:
    """Tensor that a view is a view of, through views; any other value itself."""
    while name in made and is_view(made[name]) and made[name].refs():
        name = made[name].refs()[0].name
    return name


def _converted(op: Op, role: Role) -> list[Op]:
    kind = op.type.with_layout("nhwc")
    if op.type == kind:
        return [op]
    if role is Role.WINDOW:  # a convolution's copy of the result is fused with it
        return [op]
    if role is not Role.VIEW:
        return [replace(op, types=(kind, *op.types[1:]))]
    view = replace(op, name=f"{op.name}.seen")
    return [view, Op(op.name, "clone", (("self", Ref(view.name)),), (kind,), op.module)]


def _calls(op: Op, users: Mapping[str, Sequence[Op]]) -> list[Op]:
    """Users of a value, once for each read after decomposition.

    After an activation in place, functionalization recreates views: each part of a split becomes a read of its own.
    """
    calls = [user for user in users[op.name] for _ in range(max(1, operators.lookup(user).uses))]
    if operators.lookup(op).in_place:
        narrowing = [user for user in users[op.name] if operators.lookup(user).view is View.NARROW]
        calls += [split for split in narrowing if len(split.types) > 1]
    return calls


def has_two_orders(kind: TensorType) -> bool:
    """Whether channels_last and contiguous strides differ for a tensor of this shape."""
    return len(kind.shape) == 4 and layout_of(kind.shape, dense(kind.with_layout("nhwc"))) == "nhwc"


def _near_convolutions(graph: Graph, users: Mapping[str, Sequence[Op]]) -> set[str]:
    """Operators that lead to a convolution, and users of those before the last convolution; `bmm` ends a path."""
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
