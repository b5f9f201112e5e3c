"""Tensors that autograd saves in a forward pass for the backward pass."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref, operators, refs_in
from costmodel.memory.storages import rounded, versions

_FLOATING = {"float64", "float32", "float16", "bfloat16", "complex64"}


@dataclass(frozen=True, slots=True)
class SavedTensors:
    """Tensors that one operator saves.

    Attributes:
        op: position of the operator in `graph.ops`.
        values: saved values, each once; a view is resolved to the value that it shows, see `versions`.
        extra_bytes: bytes of saved results that are not values of the graph, such as logsumexp of attention.
    """

    op: int
    values: tuple[Ref, ...]
    extra_bytes: int = 0


def saved_tensors(graph: Graph, trainable: Collection[str]) -> tuple[SavedTensors, ...]:
    """Find the tensors that each operator with a gradient saves, in execution order.

    An operator without an entry in the table is assumed to save its inputs and results; see `unknown_savers`.

    Args:
        graph: captured in training mode.
        trainable: names of the parameters that get a gradient.
    """
    needs = needing_gradient(graph, trainable)
    version = versions(graph)
    found = []
    for position, op in enumerate(graph.ops):
        if Ref(op.name) not in needs:
            continue
        saved = dict.fromkeys(version[ref] for ref in _saved(op, needs))
        found.append(SavedTensors(position, tuple(saved), _extra_bytes(graph, op)))
    return tuple(found)


def needing_gradient(graph: Graph, trainable: Collection[str]) -> set[Ref]:
    """Values that need a gradient: trainable parameters, and values computed from them."""
    needs = {Ref(value.name) for value in graph.values if value.name in trainable}
    for op in graph.ops:
        if any(ref in needs for ref in op.refs()):
            needs.update(Ref(op.name, index) for index, kind in enumerate(op.types) if kind.dtype in _FLOATING)
    return needs


def unknown_savers(graph: Graph) -> tuple[Op, ...]:
    """Operators whose saved tensors are unknown; they are overestimated, not left out."""
    return tuple(op for op in graph.ops if operators.lookup(op).saves is None)


def _saved(op: Op, needs: Collection[Ref]) -> list[Ref]:
    """Values that an operator saves, by the column `saves` of its row."""
    row = operators.lookup(op)
    if row.saves is None:
        return [*op.refs(), *(Ref(op.name, index) for index in range(len(op.types)))]
    found: list[Ref] = []
    for token in row.saves.split():
        name, _, other = token.partition(":")
        if name.startswith("#"):
            found += [Ref(op.name, int(name[1:]))] if int(name[1:]) < len(op.types) else []
        elif not other or any(ref in needs for ref in refs_in(op.arg(other))):
            found += refs_in(op.arg(name))
    return found


def _extra_bytes(graph: Graph, op: Op) -> int:
    """Extra results of fused attention: float32 logsumexp for each query and head, random seed and offset."""
    if op.base != "scaled_dot_product_attention":
        return 0
    query = op.arg("query")
    rows = math.prod(graph.type_of(query).shape[:-1]) if isinstance(query, Ref) else 0
    return rounded(4 * rows) + 2 * rounded(8)


def saved_activations(graph: Graph, saved: Collection[SavedTensors]) -> Mapping[Ref, int]:
    """Values saved for the backward pass alone, each once -> bytes; without inputs and parameters."""
    held = {value.name for value in graph.values}
    sizes: dict[Ref, int] = {}
    for entry in saved:
        for ref in entry.values:
            if ref.name not in held:
                sizes[ref] = rounded(graph.type_of(ref).nbytes)
    return sizes
