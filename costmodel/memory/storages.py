"""Storages of a graph's values: values that share memory, and bytes that the allocator counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role

ROUNDING = 512
"""Granularity of torch's CUDA allocator in bytes (`kMinBlockSize`); it reports sizes rounded up to multiples."""


def rounded(nbytes: int) -> int:
    """Bytes that torch's CUDA allocator counts for a tensor; none for an empty one."""
    return -(-nbytes // ROUNDING) * ROUNDING


def allocated(kind: TensorType) -> int:
    """Bytes that the allocator counts for a fresh tensor of this type."""
    return rounded(kind.nbytes)


@dataclass(frozen=True, slots=True)
class Storage:
    """Block of memory.

    Attributes:
        owner: value that it was allocated for; views and in-place results share it.
        nbytes: bytes that the allocator counts.
        made_at: position in `graph.ops` of the operator that allocates it; -1 for inputs, parameters and buffers.
    """

    owner: Ref
    nbytes: int
    made_at: int


def storages(graph: Graph) -> Mapping[Ref, Storage]:
    """Storage of each value."""
    found = {Ref(value.name): Storage(Ref(value.name), allocated(value.type), -1) for value in graph.values}
    for position, op in enumerate(graph.ops):
        base = shares_memory_with(op)
        for index, kind in enumerate(op.types):
            ref = Ref(op.name, index)
            shared = base is not None and (index == 0 or is_view(op))
            nbytes = 0 if index and _keeps_no_statistics(op) else allocated(kind)
            found[ref] = found[base] if shared and base is not None else Storage(ref, nbytes, position)
    return found


def _keeps_no_statistics(op: Op) -> bool:
    """Whether batch norm returns empty statistics, as in evaluation on every device but the meta device."""
    return operators.lookup(op).kind == "batch_norm" and op.arg("training") is not True


def shares_memory_with(op: Op) -> Ref | None:
    """Operand whose memory an operator's result shares: that of a view or of an in-place operator."""
    if not op.inplace and not is_view(op):
        return None
    return next(iter(op.refs()), None)


def is_view(op: Op) -> bool:
    """Whether the result of an operator is a view of its operand."""
    return operators.lookup(op).role is Role.VIEW


def versions(graph: Graph) -> Mapping[Ref, Ref]:
    """Resolve each value to the one whose elements it shows, through views but not through in-place operators.

    A tensor written in place has a version before and one after. Autograd refuses to use an older version, so two
    versions of a storage are never both saved.
    """
    found = {Ref(value.name): Ref(value.name) for value in graph.values}
    for op in graph.ops:
        base = next(iter(op.refs()), None) if is_view(op) else None
        for index in range(len(op.types)):
            ref = Ref(op.name, index)
            found[ref] = ref if base is None else found[base]
    return found


def overwritten(graph: Graph, version: Mapping[Ref, Ref]) -> set[Ref]:
    """Values, resolved by `versions`, that an operator overwrites in place."""
    return {version[op.refs()[0]] for op in graph.ops if op.inplace and op.refs()}
