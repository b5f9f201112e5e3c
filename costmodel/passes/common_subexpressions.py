"""Common-subexpression elimination."""

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
