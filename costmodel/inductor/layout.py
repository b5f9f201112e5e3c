"""Inductor's layout decision: whether convolutions run in channels-last order, and what follows for every tensor."""

from __future__ import annotations

from costmodel.inductor.channels_last import in_channels_last
from costmodel.inductor.layout_batch_one import plain_convolutions
from costmodel.inductor.layout_channels_last import preferring, with_preferred_orders
from costmodel.inductor.layout_contiguous import plainly_laid_out
from costmodel.inductor.layout_loop_order import with_voted_orders
from costmodel.ir import Graph, Op, Ref, operators

NODES_OF_FEW = 300
"""A graph of so many nodes for each convolution has only a few of them."""
NODES = {"gelu": 5, "hardsigmoid": 4, "hardswish": 5, "native_batch_norm": 12, "silu": 4}
"""Nodes that PyTorch's decompositions make of an operator beside its results."""


def prefers_channels_last(graph: Graph, on_cpu: bool = False) -> bool:
    """Inductor's `decide_layout_opt` for inference: FLOPs weighted by how each kind of convolution fares.

    On a CPU, where oneDNN runs convolutions, channels last always wins.
    """
    weight = {"grouped": 1.358, "small": 0.783, "in_out": 0.725, "default": 0.823}
    convolutions = [op for op in graph.ops if op.base == "convolution" and len(op.type.shape) == 4]
    if on_cpu or not convolutions:
        return bool(convolutions)
    if _nodes(graph) >= NODES_OF_FEW * len(convolutions):
        return False
    total = weighted = 0.0
    for op in convolutions:
        flops = operators.flops(graph, op)
        total += flops
        weighted += flops * weight[_convolution_class(graph, op)]
    return weighted <= total


def _nodes(graph: Graph) -> int:
    """About how many nodes Inductor counts: operators taken apart, single results of several, inputs, the output."""
    made = sum(NODES.get(op.base, 1) + (len(op.types) if len(op.types) > 1 else 0) for op in graph.ops)
    return made + len(graph.values) + 1


def _convolution_class(graph: Graph, op: Op) -> str:
    ref, groups = op.arg("weight"), op.arg("groups", 1)
    out_channels, in_channels, *kernel = graph.type_of(ref).shape if isinstance(ref, Ref) else (1, 1, 1)
    if isinstance(groups, int) and groups > 1 and in_channels > 1:
        return "grouped"
    if out_channels <= 64 and in_channels <= 64:
        return "small"
    return "in_out" if out_channels * 2 <= in_channels and kernel[0] > 1 else "default"


def lay_out(graph: Graph, on_cpu: bool = False) -> Graph:
    """The graph with the layouts that Inductor gives its tensors; conversions appear as `clone` operators."""
    if prefers_channels_last(graph, on_cpu):
        plain = frozenset[str]() if on_cpu else plain_convolutions(graph)
        convolutions = {op.name for op in graph.ops if op.base == "convolution"}
        channels_last = in_channels_last(graph, runnable=False, only=convolutions - plain)
        plainly = plainly_laid_out(channels_last, preferring(channels_last))
        if plainly:
            channels_last = in_channels_last(graph, runnable=False, only=convolutions - plain, plain=plainly)
        graph = with_preferred_orders(channels_last)
    return with_voted_orders(graph)
