"""Which values are still needed at each point of a graph."""

from __future__ import annotations

from costmodel.ir import Graph, Ref


def live_after(graph: Graph) -> tuple[frozenset[Ref], ...]:
    """For each operator the values that what follows it reads or the graph returns, parameters and inputs among them.

    The backward data-flow equations of Aho, Lam, Sethi and Ullman, "Compilers", section 9.2.5, of straight-line code:
    what is live before an operator is what is live after it, less what it makes, and what it reads.
    """
    live = frozenset(graph.outputs)
    found: list[frozenset[Ref]] = []
    for op in reversed(graph.ops):
        found.append(live)
        live = live.difference(Ref(op.name, index) for index in range(len(op.types))) | frozenset(op.refs())
    return tuple(reversed(found))
