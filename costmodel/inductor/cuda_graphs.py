"""Parts of compiled graphs that reduce-overhead does not replay as CUDA graphs.

Inductor divides a graph at operators that no CUDA graph can hold, and replays the parts between them (graph partition,
the default since torch 2.9). It replays no part that writes into an input of the call:
`torch._inductor.cudagraph_utils.check_for_mutation`. Parameters, buffers and results of another CUDA graph keep their
addresses and may be written. Tensors that are made on the CPU are made on the GPU instead, and divide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref, operators

_MASKS = ("bool", "uint8")
_MADE_OUTSIDE = re.compile(r"constant\d+")
"""Names of tensors that are neither inputs, parameters nor buffers, and stay on the CPU."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """Write into a tensor made outside a section: the operator, the tensor's name, and the module that writes."""

    op: str
    tensor: str
    module: str


def mutated_inputs(graph: Graph) -> dict[int, Mutation]:
    """First write into a tensor made outside, for each section that has one.

    Args:
        graph: graph with or without a partition; without one, all operators are section 0.
    """
    made = {op.name: op for op in graph.ops}
    inputs = {value.name for value in graph.inputs}
    sections = graph.partition.sections if graph.partition else (0,)
    found: dict[int, Mutation] = {}
    for op in graph.ops:
        if not op.inplace or operators.is_view(op):
            continue
        root = _root(op, made)
        maker = made.get(root.name)
        eager = maker is not None and maker.section != op.section and sections[maker.section] is None
        if root.name in inputs or eager:
            found.setdefault(op.section, Mutation(op.name, root.name, op.module))
    return found


def unsafe_ops(graph: Graph) -> dict[str, str]:
    """Operators of compiled graphs that no CUDA graph can hold, by name, each with the reason."""
    sections = graph.partition.sections if graph.partition else ()
    found = {}
    for op in graph.ops if sections else ():
        if sections[op.section] is None:
            continue
        if operators.lookup(op).reads:
            found[op.name] = "copies a tensor to the CPU"
        elif _writes_by_mask(graph, op):
            found[op.name] = "writes at the places of a mask, which are counted on the CPU"
    return found


def copied_each_call(graph: Graph) -> tuple[str, ...]:
    """Modules that copy a tensor from the CPU to the GPU in every call, each once."""
    copies = [op for op in graph.ops if op.base == operators.CAST and _MADE_OUTSIDE.fullmatch(op.refs()[0].name)]
    return tuple(dict.fromkeys(op.module for op in copies))


def outside_cuda_graphs(
    kernels: Sequence[Collection[str]], unsafe: Collection[str], mutation: Mutation | None
) -> frozenset[int]:
    """Indices of a compiled graph's kernels that are launched one by one.

    Args:
        kernels: names of the operators in each kernel.
        unsafe: operators that no CUDA graph can hold.
        mutation: write into an input of the graph; None if there is none.
    """
    alone = {index for index, ops in enumerate(kernels) if not set(ops).isdisjoint(unsafe)}
    if mutation is None:
        return frozenset(alone)
    writers = [index for index, ops in enumerate(kernels) if mutation.op in ops] or range(len(kernels))
    return frozenset(alone.union(*(_run_around(index, alone, len(kernels)) for index in writers)))


def _run_around(index: int, alone: Collection[int], count: int) -> range:
    """Longest run of kernels with an index and without any in `alone`."""
    start = max((other + 1 for other in alone if other < index), default=0)
    return range(start, min((other for other in alone if other > index), default=count))


def _writes_by_mask(graph: Graph, op: Op) -> bool:
    """Whether an operator is `index_put` with a mask, unless Inductor makes it a `masked_fill` by one number."""
    indices, values = op.arg("indices"), op.arg("values")
    if op.base != "index_put" or not isinstance(indices, tuple) or not isinstance(values, Ref):
        return False
    masks = [index for index in indices if isinstance(index, Ref) and graph.type_of(index).dtype in _MASKS]
    return bool(masks) and (len(indices) > 1 or graph.type_of(values).numel > 1)


def _root(op: Op, made: Mapping[str, Op]) -> Ref:
    """Tensor whose memory an operator writes, before any write and view."""
    ref = next(iter(op.refs()))
    while (
        (source := made.get(ref.name)) is not None and (source.inplace or operators.is_view(source)) and source.refs()
    ):
        ref = source.refs()[0]
    return ref
