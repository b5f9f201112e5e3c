"""Dead-code elimination."""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Graph, Op


def drop_dead_code(graph: Graph) -> Graph:
    """The graph without operators and parameters that no output depends on; its inputs stay, for callers pass them.

    An operator stays whole if any of its results is live.
    """
    live = {ref.name for ref in graph.outputs}
    kept: list[Op] = []
    for op in reversed(graph.ops):
        if op.name in live:
            kept.append(op)
            live.update(ref.name for ref in op.refs())
    values = tuple(value for value in graph.values if value.role == "input" or value.name in live)
    return replace(graph, values=values, ops=tuple(reversed(kept))).verify()
