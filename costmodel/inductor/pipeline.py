"""What TorchInductor does to a graph, without it: rewrites, layout decision, realisation and fusion into kernels.

The rules follow Inductor's lowering and scheduler (torch 2.11, inference); each function names its original. On a CPU
the same lowering ends in loops in C++, with the few rules of its own that `on_cpu` stands for.
They are checked against the kernels that compiled models really launch (see the dataset's kernel counts).
"""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.inductor.decompositions import decompose
from costmodel.inductor.layout import lay_out, prefers_channels_last
from costmodel.inductor.lowering import Lowering, Node, realize
from costmodel.inductor.reorder_for_locality import with_locality
from costmodel.inductor.scheduler import fuse
from costmodel.ir import Graph
from costmodel.kernels.attention import unrolled
from costmodel.kernels.extractor import Extractor
from costmodel.kernels.kernel import Kernel

__all__ = ["compiled_kernels", "lay_out", "lowered", "prefers_channels_last", "schedule"]


def compiled_kernels(graph: Graph, on_cpu: bool = False) -> tuple[Kernel, ...]:
    """The kernel calls of one forward pass of `torch.compile(model)`, in order."""
    return schedule(lowered(graph, on_cpu), on_cpu)


def lowered(graph: Graph, on_cpu: bool = False) -> Graph:
    """The graph as Inductor schedules it: composite operators taken apart, memory orders decided."""
    return lay_out(with_locality(decompose(unrolled(graph), on_cpu)), on_cpu)


def schedule(graph: Graph, on_cpu: bool = False) -> tuple[Kernel, ...]:
    """Realises values as Inductor's lowering does, fuses as its scheduler does, and returns the kernels in order."""
    lowering = realize(graph, on_cpu)
    nodes = fuse(lowering.nodes, lowering.writers)
    written = _written(nodes, lowering)
    extractor = Extractor(graph)
    return tuple(
        Kernel(
            "aten" if node.extern else "triton", extractor.extract(node.ops, written), tuple(node.ops), node.launches
        )
        for node in nodes
    )


def _written(nodes: Sequence[Node], lowering: Lowering) -> set[str]:
    """The operators whose results reach memory: those that another kernel reads, or that the graph returns.

    What is computed anew wherever it is used never does, and what only its own kernel reads stays in registers.
    """
    written = lowering.returned()
    for node in nodes:
        read = {made for name, _ in node.reads for made in lowering.made_by(name)}
        written |= read.difference(node.makes)
    return written
