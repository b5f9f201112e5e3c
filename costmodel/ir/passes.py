"""Dead-code elimination."""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Graph, Op, Ref


def drop_dead_code(graph: Graph) -> Graph:
    """The graph without operators and parameters that no output depends on; its inputs stay, for callers pass them.

    An operator stays whole if any of its results is live. What is freed after a dead one is freed after the live one
    before it.
    """
    live = {ref.name for ref in graph.outputs}
    kept: list[Op] = []
    frees: tuple[Ref, ...] = ()
    for op in reversed(graph.ops):
        frees = (*op.frees, *frees)
        if op.name in live:
            kept.append(replace(op, frees=frees))
            frees = ()
            live.update(ref.name for ref in op.refs())
    values = tuple(value for value in graph.values if value.role == "input" or value.name in live)
    return replace(graph, values=values, ops=tuple(reversed(kept))).verify()
