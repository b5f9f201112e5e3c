"""Graphs and graph breaks of a captured pass, for the report."""

from __future__ import annotations

from costmodel.inductor.cuda_graphs import copied_each_call, mutated_inputs, unsafe_ops
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
            why = "; ".join(partition.recompiled) or "the module changes in its first call"
            found.append(f"compiled again in a later call: {why}")
        if partition.reads_kept:
            found.append(
                "forward reads a tensor that it computed in an earlier call; reduce-overhead is left out, because it "
                "raises an error: a replay overwrites results of the one before; copy the tensor into a buffer (copy_)"
            )
    copies = copied_each_call(graph) if is_compiled(graph) else ()
    found += [
        f"{module or 'forward'} copies a tensor from the CPU to the GPU in every call: register it as a buffer"
        for module in copies
    ]
    return found + [f"reduce-overhead: {reason}" for reason in _skipped(graph)]


def _skipped(graph: Graph) -> tuple[str, ...]:
    """Reasons why a compiled graph, or a part of it, is not replayed as a CUDA graph."""
    if not is_compiled(graph):
        return ()
    modules = {op.name: op.module or "forward" for op in graph.ops}
    divided = [f"a CUDA graph is divided where {modules[name]} {reason}" for name, reason in unsafe_ops(graph).items()]
    written = [
        f"no CUDA graph where {item.module or 'forward'} writes into {item.tensor} in place"
        for item in mutated_inputs(graph).values()
    ]
    return (*written, *dict.fromkeys(divided))
