"""Dead-code elimination."""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Graph, Op, Ref, TensorType

RANDOM = frozenset(
    (
        *("bernoulli", "exponential", "multinomial", "native_dropout", "normal", "rand", "rand_like", "randint"),
        *("randint_like", "randn", "randn_like", "randperm", "rrelu_with_noise", "uniform"),
    )
)
"""Operators whose results differ from call to call."""


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


def merge_common_subexpressions(graph: Graph) -> Graph:
    """The graph with one operator in place of several that compute the same: same operator, arguments and types.

    The first stays, under its own name; those that draw random numbers are not the same as any other.
    """
    kept: list[Op] = []
    names: dict[str, str] = {}
    known: dict[tuple[str, str, tuple[TensorType, ...]], str] = {}
    for op in graph.ops:
        renamed = op.reading(lambda ref: Ref(names.get(ref.name, ref.name), ref.index))
        text = repr(renamed.args)  # tells 1 from 1.0 and from True, which are equal as values
        first = op.name if op.base in RANDOM else known.setdefault((op.op, text, op.types), op.name)
        if first == op.name:
            kept.append(renamed)
        else:
            names[op.name] = first
    outputs = tuple(Ref(names.get(ref.name, ref.name), ref.index) for ref in graph.outputs)
    return replace(graph, ops=tuple(kept), outputs=outputs).verify()


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


__all__ = ["drop_dead_code", "live_after", "merge_common_subexpressions"]
