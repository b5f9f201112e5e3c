"""Values that Inductor realizes contiguous although their operands are in channels_last.

One kind is concatenations. Their kernels index each input through an `Identity` that hides the index from Inductor's
analysis (`pointwise_cat` in torch/_inductor/lowering.py; torch 2.13 looks through it). The read then has no known
strides and no influence on the order of the loops; without other reads the loops are contiguous (`get_fill_order`,
`pick_loop_order`). It matters where pooling reads a concatenation: the kernel that concatenates permutes all that it
reads, and pooling runs on contiguous planes.

The other kind is values that a library call reads through a view, such as half of the channels: the viewed tensor gets
its layout in eager execution before the view is made (`convert_to_reinterpret_view`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.inductor.channels_last import in_channels_last
from costmodel.inductor.compilation import Compilation
from costmodel.inductor.layout_channels_last import has_two_orders, preferred_values
from costmodel.inductor.lowering import lower
from costmodel.ir import Graph, Op, operators
from costmodel.ir.op_table import Role
from costmodel.ir.operators import CHANNELS_LAST, CONVOLUTION_INPUT_COPY, is_view


def keep_contiguous(compilation: Compilation) -> Compilation:
    """Repeat the conversion to channels_last with these values contiguous."""
    decision = compilation.channels_last
    contiguous = contiguous_values(compilation) if decision is not None else frozenset()
    if decision is None or not contiguous:
        return compilation
    return compilation.with_graph(
        in_channels_last(decision.before, runnable=False, only=decision.convolutions, contiguous=contiguous)
    )


def contiguous_values(compilation: Compilation) -> frozenset[str]:
    """Names of realized values that are in channels_last in this graph and contiguous in Inductor."""
    users, preferred = compilation.users, compilation.analysis(preferred_values)
    nodes = compilation.analysis(lower).nodes
    found = set()
    for node in (node for node in nodes if not node.extern and len(node.makes) == 1):
        made = {name: compilation.producers[name] for name in node.ops}
        result = made[node.makes[0]]
        required = result.name in preferred or any(user.base == "convolution" for user in users[result.name])
        if result.type.layout != "nhwc" or required or not has_two_orders(result.type):
            continue
        if _is_concatenated(compilation.graph, made, result) or _is_viewed_by_library(result, users):
            found.add(result.name)
    return frozenset(found)


def _is_concatenated(graph: Graph, made: Mapping[str, Op], result: Op) -> bool:
    """Whether all reads of a kernel that have the size of its result are concatenated."""
    joins = any(operators.lookup(op).role is Role.CONCAT and op.type.shape == result.type.shape for op in made.values())
    read = {ref for op in made.values() for ref in op.refs() if ref.name not in made}
    return joins and all(graph.type_of(ref).shape != result.type.shape for ref in read)


def _is_viewed_by_library(result: Op, users: Mapping[str, Sequence[Op]]) -> bool:
    """Whether a library call reads a value through views, or a copy of such a view."""
    views = [user for user in users[result.name] if is_view(user)]
    while views:
        for user in users[views.pop().name]:
            role = operators.lookup(user).role
            copied = user.base == CONVOLUTION_INPUT_COPY or user.arg("memory_format") == CHANNELS_LAST
            if role is Role.EXTERN or copied:
                return True
            if role is Role.VIEW:
                views.append(user)
    return False
