"""Compiled graphs that reduce-overhead does not replay as CUDA graphs: those that write into an input of the call.

The rule is that of `torch._inductor.cudagraph_utils.check_for_mutation`: parameters, buffers and results of another
CUDA graph keep their addresses and may be written; any other input may not.
"""

from __future__ import annotations

from collections.abc import Mapping

from costmodel.ir import Graph, Op, Ref, operators


def mutated_inputs(graph: Graph) -> dict[int, tuple[str, str]]:
    """Sections that write into a tensor made outside, each with the tensor and the module that writes.

    Args:
        graph: graph with or without a partition; without one, all operators are section 0.
    """
    made = {op.name: op for op in graph.ops}
    inputs = {value.name for value in graph.inputs}
    sections = graph.partition.sections if graph.partition else (0,)
    found: dict[int, tuple[str, str]] = {}
    for op in graph.ops:
        if not op.inplace or operators.is_view(op):
            continue
        root = _root(op, made)
        maker = made.get(root.name)
        eager = maker is not None and maker.section != op.section and sections[maker.section] is None
        if root.name in inputs or eager:
            found.setdefault(op.section, (root.name, op.module))
    return found


def _root(op: Op, made: Mapping[str, Op]) -> Ref:
    """Tensor whose memory an operator writes, before any write and view."""
    ref = next(iter(op.refs()))
    while (
        (source := made.get(ref.name)) is not None and (source.inplace or operators.is_view(source)) and source.refs()
    ):
        ref = source.refs()[0]
    return ref
