"""Which values of a graph share a block of memory, and how many bytes of it the allocator counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role

ROUNDING = 512
"""Bytes: the granularity of torch's CUDA allocator (`kMinBlockSize`); what it reports as allocated is so rounded."""


def rounded(nbytes: int) -> int:
    """Bytes that torch's CUDA allocator counts for a tensor; none for an empty one."""
    return -(-nbytes // ROUNDING) * ROUNDING


def allocated(kind: TensorType) -> int:
    """Bytes that the allocator counts for a fresh tensor of this type."""
    return rounded(kind.nbytes)


@dataclass(frozen=True, slots=True)
class Storage:
    """A block of memory.

    Attributes:
        owner: the value that it was made for; views of it and results written in place share it.
        nbytes: what the allocator counts.
        made_at: position in `graph.ops` of the operator that makes it; -1 for inputs, parameters and buffers.
    """

    owner: Ref
    nbytes: int
    made_at: int


def storages(graph: Graph) -> Mapping[Ref, Storage]:
    """The block that each value lies in."""
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
    """Batch norm in evaluation returns empty statistics on every device; only the meta device says otherwise."""
    return operators.lookup(op).kind == "batch_norm" and op.arg("training") is not True


def shares_memory_with(op: Op) -> Ref | None:
    """The argument whose memory an operator's result lies in: that of a view, or of one that writes in place."""
    if not op.inplace and not is_view(op):
        return None
    return next(iter(op.refs()), None)


def is_view(op: Op) -> bool:
    """Whether an operator makes another tensor of the memory it is given."""
    return operators.lookup(op).role is Role.VIEW


def versions(graph: Graph) -> Mapping[Ref, Ref]:
    """Each value -> the one whose elements it shows: through views, but not through what was written in place.

    A tensor that is written in place has a version before and one after. Autograd refuses to use an older one, so no
    two versions of a block are saved.
    """
    found = {Ref(value.name): Ref(value.name) for value in graph.values}
    for op in graph.ops:
        base = next(iter(op.refs()), None) if is_view(op) else None
        for index in range(len(op.types)):
            ref = Ref(op.name, index)
            found[ref] = ref if base is None else found[base]
    return found


def overwritten(graph: Graph, version: Mapping[Ref, Ref]) -> set[Ref]:
    """The values, as `versions` resolves them, that an operator has written over in place."""
    return {version[op.refs()[0]] for op in graph.ops if op.inplace and op.refs()}
