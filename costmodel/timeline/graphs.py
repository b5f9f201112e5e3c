"""Graphs and graph breaks of a captured pass, for the report."""

from __future__ import annotations

from costmodel.inductor.cuda_graphs import mutated_inputs
from costmodel.ir import Graph
from costmodel.report.types import GraphBreak, Graphs


def graphs_of(graph: Graph) -> Graphs:
    """Graphs that torch.compile makes of a pass."""
    breaks = tuple(GraphBreak(item.source, item.op) for item in graph.breaks if item.kind == "cut")
    if graph.partition is None:
        return Graphs(breaks=breaks, skipped=_skipped(graph))
    return Graphs(graph.partition.entered, True, breaks, _skipped(graph), graph.partition.failure)


def is_compiled(graph: Graph) -> bool:
    """Whether torch.compile compiles anything: it fails on no graph, and Dynamo does not give up every frame."""
    return graph.partition is None or (graph.partition.entered > 0 and not graph.partition.failure)


def graph_warnings(graph: Graph) -> list[str]:
    """Warnings of errors, of repeated compilation, and of graphs that are no CUDA graphs."""
    partition = graph.partition
    found = []
    if partition is not None and partition.failure:
        return [f"torch.compile fails on this model: {partition.failure}"]
    if partition is not None and partition.entered:
        if partition.compiled > len({number for number in partition.sections if number is not None}):
            found.append("the module changes in its first call, and is compiled again in the second")
        if partition.keeps_tensors:
            found.append(
                "the module keeps a tensor that forward computed; reduce-overhead may raise an error, because the next "
                "replay overwrites it: keep a clone"
            )
    return found + [f"no CUDA graph in reduce-overhead: {reason}" for reason in _skipped(graph)]


def _skipped(graph: Graph) -> tuple[str, ...]:
    """Reasons why a compiled graph is not replayed as a CUDA graph."""
    if not is_compiled(graph):
        return ()
    return tuple(
        f"{module or 'forward'} writes into {name} in place" for name, module in mutated_inputs(graph).values()
    )
