"""Inductor's layout decision: whether convolutions run in channels_last."""

from __future__ import annotations

from dataclasses import replace

from costmodel.inductor.channels_last import in_channels_last
from costmodel.inductor.compilation import ChannelsLast, Compilation
from costmodel.inductor.layout_batch_one import contiguous_convolutions
from costmodel.ir import Graph, Op, Ref, operators

NODES_PER_CONVOLUTION = 300
"""A graph with so many nodes for each convolution keeps its layout."""
WEIGHTS = {"grouped": 1.358, "small": 0.783, "in_out": 0.725, "default": 0.823}
"""Relative time of a convolution in channels_last, by class (`decide_layout_opt`)."""


def prefers_channels_last(graph: Graph, on_cpu: bool = False, training: bool = False) -> bool:
    """Decide the layout of convolutions by their weighted FLOPs (Inductor's `decide_layout_opt` for inference).

    On a CPU, where oneDNN runs convolutions, the answer is always channels_last. In training it is unless a convolution
    is grouped but not depthwise, or halves its channels, or all are small.
    """
    convolutions = [op for op in graph.ops if op.base == "convolution" and len(op.type.shape) == 4]
    if on_cpu or not convolutions:
        return bool(convolutions)
    if _nodes(graph) >= NODES_PER_CONVOLUTION * len(convolutions):
        return False
    if training:
        grouped, narrowing, small = zip(*(_kinds(graph, op) for op in convolutions), strict=True)
        return not (any(grouped) or any(narrowing) or all(small))
    total = weighted = 0.0
    for op in convolutions:
        flops = operators.flops(graph, op)
        total += flops
        weighted += flops * WEIGHTS[_convolution_class(graph, op)]
    return weighted <= total


def _nodes(graph: Graph) -> int:
    """Estimate the number of FX nodes: decomposed operators, `getitem` of several results, inputs, the output."""
    made = sum(operators.lookup(op).fx_nodes + (len(op.types) if len(op.types) > 1 else 0) for op in graph.ops)
    return made + len(graph.values) + 1


def _convolution_class(graph: Graph, op: Op) -> str:
    ref, groups = op.arg("weight"), op.arg("groups", 1)
    out_channels, in_channels, *kernel = graph.type_of(ref).shape if isinstance(ref, Ref) else (1, 1, 1)
    if isinstance(groups, int) and groups > 1 and in_channels > 1:
        return "grouped"
    if out_channels <= 64 and in_channels <= 64:
        return "small"
    return "in_out" if out_channels * 2 <= in_channels and kernel[0] > 1 else "default"


def _kinds(graph: Graph, op: Op) -> tuple[bool, bool, bool]:
    """Whether a convolution is grouped but not depthwise, halves its channels at least, and is small."""
    ref, groups = op.arg("weight"), op.arg("groups", 1)
    out_channels, in_channels, *kernel = graph.type_of(ref).shape if isinstance(ref, Ref) else (1, 1, 1)
    is_grouped = isinstance(groups, int) and groups > 1 and in_channels > 1
    return is_grouped, out_channels * 2 <= in_channels and kernel[0] > 1, max(out_channels, in_channels) <= 64


def propagate_channels_last(compilation: Compilation) -> Compilation:
    """Convert convolutions to channels_last if that is predicted to pay off; conversions appear as `clone`."""
    graph, on_cpu = compilation.graph, compilation.target.on_cpu
    if not prefers_channels_last(graph, on_cpu, compilation.target.training):
        return compilation
    contiguous = frozenset[str]() if on_cpu else contiguous_convolutions(compilation)
    convolutions = frozenset(op.name for op in graph.ops if op.base == "convolution") - contiguous
    converted = in_channels_last(graph, runnable=False, only=convolutions)
    return replace(compilation, graph=converted, channels_last=ChannelsLast(graph, convolutions))
