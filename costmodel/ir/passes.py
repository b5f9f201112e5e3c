"""Passes over any graph: dead-code elimination, common-subexpression elimination, liveness."""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Graph, Op, Ref, TensorType, operators


def drop_dead_code(graph: Graph) -> Graph:
    """Remove operators and parameters that no output depends on; inputs stay, because callers pass them.

    An operator stays whole if any of its results is live, or if Python reads them. Memory freed after a removed
    operator counts as freed after the live operator before it.
    """
    live = {ref.name for ref in graph.outputs}
    kept: list[Op] = []
    frees: tuple[Ref, ...] = ()
    for op in reversed(graph.ops):
        frees = (*op.frees, *frees)
        if op.name in live or operators.lookup(op).reads:
            kept.append(replace(op, frees=frees))
            frees = ()
            live.update(ref.name for ref in op.refs())
    values = tuple(value for value in graph.values if value.role == "input" or value.name in live)
    return replace(graph, values=values, ops=tuple(reversed(kept))).verify()


def merge_common_subexpressions(graph: Graph) -> Graph:
    """Merge operators that compute the same value: same operator, arguments and types.

    The first stays, under its own name. Random operators are never merged.
    """
    kept: list[Op] = []
    names: dict[str, str] = {}
    known: dict[tuple[str, str, tuple[TensorType, ...]], str] = {}
    for op in graph.ops:
        renamed = op.reading(lambda ref: Ref(names.get(ref.name, ref.name), ref.index))
        text = repr(renamed.args)  # distinguishes 1 from 1.0 and from True, which compare equal
        first = op.name if operators.lookup(op).random else known.setdefault((op.op, text, op.types), op.name)
        if first == op.name:
            kept.append(renamed)
        else:
            names[op.name] = first
    outputs = tuple(Ref(names.get(ref.name, ref.name), ref.index) for ref in graph.outputs)
    return replace(graph, ops=tuple(kept), outputs=outputs).verify()


def live_after(graph: Graph) -> tuple[frozenset[Ref], ...]:
    """Values live after each operator: later operators read them, or the graph returns them.

    Parameters and inputs are included. The backward data-flow equations are those of Aho, Lam, Sethi and Ullman,
    "Compilers", section 9.2.5, for straight-line code: live before = (live after - defined) + used.
    """
    live = frozenset(graph.outputs)
    found: list[frozenset[Ref]] = []
    for op in reversed(graph.ops):
        found.append(live)
        live = live.difference(Ref(op.name, index) for index in range(len(op.types))) | frozenset(op.refs())
    return tuple(reversed(found))


__all__ = ["drop_dead_code", "live_after", "merge_common_subexpressions"]
