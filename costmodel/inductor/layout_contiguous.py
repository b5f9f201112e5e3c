"""Values that Inductor lays out plainly, though all that they are made of lies channels last.

One kind is concatenations. Whoever computes one reads each part at a place that Inductor hides from its own algebra
(`Identity` in `pointwise_cat` of torch/_inductor/lowering.py; torch 2.13 sees through it). So a read through it does
not tell along which dimension its neighbours lie, and has no say in the order of the loops; where nothing else has,
they are plain (`get_fill_order`, `pick_loop_order`). It shows where a pooling, or what else wants its operand in memory
but in no order, reads one: the kernel that joins turns all that it reads, and the pooling goes from plane to plane.

The other kind is what a library call reads through a view, half of whose channels go one way, say, and half another:
before the view is taken its base is laid out as it was in eager execution (`convert_to_reinterpret_view`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from costmodel.inductor.layout_channels_last import has_two_orders
from costmodel.inductor.lowering import realize
from costmodel.ir import Graph, Op, operators
from costmodel.ir.op_table import Role
from costmodel.ir.operators import CHANNELS_LAST, INSIDE


def plainly_laid_out(graph: Graph, preferred: Collection[str]) -> frozenset[str]:
    """Names of the values that are kept in memory, channels last in this graph, and plain as Inductor makes them.

    Args:
        graph: laid out as if all followed what it reads.
        preferred: values that Inductor keeps channels last on the way to a convolution.
    """
    users = graph.users()
    kept = (node for node in realize(graph).nodes if not node.extern and len(node.makes) == 1)
    found = set()
    for node in kept:
        made = {op.name: op for op in graph.ops if op.name in node.ops}
        result = made[node.makes[0]]
        wanted = result.name in preferred or any(user.base == "convolution" for user in users[result.name])
        if result.type.layout != "nhwc" or wanted or not has_two_orders(result.type):
            continue
        if _is_joined(graph, made, result) or _is_seen_by_libraries(result, users):
            found.add(result.name)
    return frozenset(found)


def _is_joined(graph: Graph, made: Mapping[str, Op], result: Op) -> bool:
    """Whether a kernel's result is made of concatenations alone, as far as it is made of anything of its size."""
    joins = any(operators.lookup(op).role is Role.CONCAT and op.type.shape == result.type.shape for op in made.values())
    read = {ref for op in made.values() for ref in op.refs() if ref.name not in made}
    return joins and all(graph.type_of(ref).shape != result.type.shape for ref in read)


def _is_seen_by_libraries(result: Op, users: Mapping[str, Sequence[Op]]) -> bool:
    """Whether a library call reads it through views, be it a copy of what they see."""
    views = [user for user in users[result.name] if operators.lookup(user).role is Role.VIEW]
    while views:
        for user in users[views.pop().name]:
            role = operators.lookup(user).role
            copied = user.base == INSIDE or user.arg("memory_format") == CHANNELS_LAST
            if role is Role.EXTERN or copied:
                return True
            if role is Role.VIEW:
                views.append(user)
    return False
