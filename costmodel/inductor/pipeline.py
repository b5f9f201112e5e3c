"""Compilation of a graph by the rules of TorchInductor, without running it: rewrites, layouts, lowering, fusion.

The rules follow Inductor in torch 2.11 for inference; each function names the function of torch that it follows. On a
CPU the same lowering ends in loops in C++, with a few rules of its own (`Target.on_cpu`). Tests compare the kernels
with the kernels that compiled models launch.
"""

from __future__ import annotations

from costmodel.device import ASSUMED_GPU
from costmodel.inductor.compilation import Compilation, Pass, Target
from costmodel.inductor.decompositions import decompose, divide_composites, divide_gradients, unroll_attention
from costmodel.inductor.layout import propagate_channels_last
from costmodel.inductor.layout_channels_last import prefer_channels_last
from costmodel.inductor.layout_contiguous import keep_contiguous
from costmodel.inductor.layout_loop_order import choose_loop_orders
from costmodel.inductor.lowering import Lowering, Node, lower
from costmodel.inductor.reorder_for_locality import reorder_for_locality
from costmodel.inductor.scheduler import fuse
from costmodel.ir import Graph
from costmodel.kernels.extractor import Extractor
from costmodel.kernels.kernel import Kernel

__all__ = ["PASSES", "compile_graph", "compiled_kernels", "schedule"]

PASSES: tuple[Pass, ...] = (
    unroll_attention,
    divide_composites,
    divide_gradients,
    decompose,
    reorder_for_locality,
    propagate_channels_last,
    keep_contiguous,
    prefer_channels_last,
    choose_loop_orders,
)
"""Passes before scheduling, in order. They share analyses, lowering among them, as long as the graph is the same."""


def compiled_kernels(
    graph: Graph,
    on_cpu: bool = False,
    multiprocessors: int = ASSUMED_GPU.multiprocessors,
    training: bool = False,
) -> tuple[Kernel, ...]:
    """Kernels of one forward pass of `torch.compile(model)`, in order.

    Args:
        graph: captured forward pass.
        on_cpu: whether it is compiled for a CPU.
        multiprocessors: streaming multiprocessors of the GPU.
        training: whether it is the forward or backward graph of a training step.
    """
    return schedule(compile_graph(graph, on_cpu, multiprocessors, training))


def compile_graph(
    graph: Graph,
    on_cpu: bool = False,
    multiprocessors: int = ASSUMED_GPU.multiprocessors,
    training: bool = False,
) -> Compilation:
    """Apply every pass: operators decomposed and in order of lowering, layouts decided."""
    compilation = Compilation(graph, Target(on_cpu, multiprocessors, training))
    for apply in PASSES:
        compilation = apply(compilation)
    return compilation


def schedule(compilation: Compilation) -> tuple[Kernel, ...]:
    """Lower a graph after all passes, fuse its nodes, and return the kernels in order."""
    lowering = compilation.analysis(lower)
    nodes = fuse(lowering.nodes, lowering.writers, compilation.target.training)
    written = _written(nodes, lowering)
    extractor = Extractor(compilation.graph)
    return tuple(
        Kernel("aten" if node.extern else "triton", extractor.extract(node.ops, written), node.ops, node.launches)
        for node in nodes
    )


def _written(nodes: list[Node], lowering: Lowering) -> set[str]:
    """Operators whose results are written to memory: another kernel reads them, or the graph returns them.

    A value that is recomputed where it is used is never written; a value that only its own kernel reads stays in
    registers.
    """
    written = lowering.returned()
    for node in nodes:
        read = {made for name, _ in node.reads for made in lowering.made_by(name)}
        written |= read.difference(node.makes)
    return written
