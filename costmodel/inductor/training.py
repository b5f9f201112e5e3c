"""Compilation of a training step by Inductor's rules: the forward graph, then the backward graph on what it saves.

The backward graph is compiled for the strides that the forward graph's results have (`fwd_output_strides` in
AOTAutograd), so where convolutions run in channels_last, their gradients do too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costmodel.device import ASSUMED_GPU
from costmodel.inductor.channels_last import in_channels_last
from costmodel.inductor.compilation import Compilation
from costmodel.inductor.pipeline import compile_graph, schedule
from costmodel.ir import Graph
from costmodel.kernels.kernel import Kernel


def compile_step(
    forward: Graph, backward: Graph, saved: Mapping[str, int], multiprocessors: int = ASSUMED_GPU.multiprocessors
) -> tuple[Compilation, Compilation]:
    """Apply every pass to both graphs of a step.

    Args:
        forward: forward graph.
        backward: backward graph.
        saved: values of the backward graph that are outputs of the forward graph, by place there.
        multiprocessors: streaming multiprocessors of the GPU.
    """
    first = compile_graph(forward, False, multiprocessors, training=True)
    layouts = {name: first.graph.type_of(first.graph.outputs[place]).layout for name, place in saved.items()}
    return first, compile_graph(_laid_out(backward, layouts), False, multiprocessors, training=True)


def step_kernels(
    forward: Graph, backward: Graph, saved: Mapping[str, int], multiprocessors: int = ASSUMED_GPU.multiprocessors
) -> tuple[tuple[Kernel, ...], tuple[Kernel, ...]]:
    """Kernels of the compiled forward and backward graph, in order; arguments are those of `compile_step`."""
    first, second = compile_step(forward, backward, saved, multiprocessors)
    return schedule(first), schedule(second)


def _laid_out(graph: Graph, layouts: Mapping[str, str]) -> Graph:
    """The graph with its saved values in the layouts that they have, and results that follow from them."""
    values = tuple(
        replace(value, type=value.type.with_layout(layouts.get(value.name, value.type.layout)))
        for value in graph.values
    )
    if values == graph.values:
        return graph
    return in_channels_last(replace(graph, values=values), runnable=False)
