"""Split reductions: Inductor reduces in several levels where one kernel has too few results to fill a GPU.

The rules follow `Reduction.num_splits` and `InductorChoices.reduction_split_factor` in torch/_inductor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role
from costmodel.ir.rare_costs import length_along
from costmodel.ir.strides import Strides, dense, read_through

THREADS = 2048
"""Resident threads of a multiprocessor."""
LEAST, MOST = 32, 512
"""Fewest and most elements that a thread reduces."""
BLOCK = 256
"""Threads of a block that reduces contiguous elements."""
ROWS = 4
"""Elements that a thread of a block over other elements reduces at once."""
_KEEPING = frozenset({"_log_softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort"})
"""Reductions that give a result for each element of a row."""
Read = tuple[str, Strides | None]
"""A tensor, and the strides at which the loops read it; None where they are unknown."""


def reduction_outer(op: Op, source: TensorType) -> int:
    """Count independent results of a reduction."""
    if op.type.numel == source.numel and op.base in _KEEPING:
        return source.numel // max(1, length_along(source, op))
    return max(1, op.type.numel)


@dataclass(frozen=True, slots=True)
class SplitReduction:
    """Split of a reduction into kernels.

    Attributes:
        levels: number of kernels on a GPU, each of which reduces the partial results of the one before.
        crosswise: whether the loops reduce along contiguous memory, but not along the last dimension, so that pointwise
            loops over all elements do not fuse with them: group norm in channels_last.
    """

    levels: int
    crosswise: bool


def split_reduction(graph: Graph, op: Op, computed: Callable[[str], Op | None], multiprocessors: int) -> SplitReduction:
    """Predict the split of a reduction, by the memory order of its reads.

    Args:
        graph: graph of the reduction.
        op: the reduction.
        computed: operator of a value that is recomputed where it is used; None for a value read from memory.
        multiprocessors: streaming multiprocessors of the GPU.
    """
    ref = op.refs()[0]
    source = graph.type_of(ref)
    outer = reduction_outer(op, source)
    reads = _full_reads(graph, ref, computed)
    if outer > 1 and not reads:
        return SplitReduction(1, crosswise=False)
    dims = _reduced(op, source)
    along = [[strides[dim] == 1 for dim in dims] if strides is not None else [] for _, strides in reads]
    rows, runs = sum(map(any, along)), sum(steps[-1:] == [True] for steps in along)
    contiguous, in_runs = 2 * rows > len(reads), 2 * runs > len(reads)
    whole = op.base in _KEEPING  # `Sort` has no split, and a split scan is one kernel (`SplitScan`)
    count = 1 if whole else levels(outer, max(1, source.numel // outer), contiguous, in_runs, multiprocessors)
    return SplitReduction(count, crosswise=contiguous and not in_runs)


def levels(outer: int, inner: int, contiguous: bool, in_runs: bool, multiprocessors: int) -> int:
    """Count kernels of a reduction.

    Args:
        outer: number of results.
        inner: elements of each result.
        contiguous: whether any reduced dimension is contiguous in memory.
        in_runs: whether the last reduced dimension is: partial results are then runs along it.
        multiprocessors: streaming multiprocessors of the GPU.
    """
    parts = split_factor(outer, inner, contiguous, multiprocessors)
    return 1 if parts == 1 else 1 + levels(outer * parts, -(-inner // parts), in_runs, in_runs, multiprocessors)


def split_factor(outer: int, inner: int, contiguous: bool, multiprocessors: int) -> int:
    """Number of partial results that the first kernel makes for each result; 1 is unsplit.

    Args:
        outer: number of results.
        inner: elements of each result.
        contiguous: whether reduced elements are contiguous in memory.
        multiprocessors: streaming multiprocessors of the GPU.
    """
    threads = multiprocessors * THREADS
    if outer > 1 and (inner <= LEAST or outer >= 2 * LEAST * multiprocessors):
        return 1
    if contiguous or outer == 1:
        if outer >= 2 * multiprocessors or inner <= LEAST * BLOCK:
            return 1
        per_thread = _per_thread(outer, inner, BLOCK, threads, -(-(threads // (2 * BLOCK)) // outer), near=30)
        return -(-inner // (per_thread * BLOCK))
    blocks = -(-outer // 128)
    per_thread = _per_thread(outer, inner, ROWS, threads, -(-(threads // BLOCK) // blocks), near=20)
    return -(-inner // (per_thread * ROWS))


def _per_thread(outer: int, inner: int, width: int, threads: int, splits: int, near: int) -> int:
    """Elements that a thread reduces so that blocks fill the GPU; a divisor of all elements, if one is near."""
    if outer * inner <= LEAST * threads:
        return LEAST
    if outer * inner >= MOST * threads:
        closest = _nearest_divisor(inner, MOST)
        return closest if abs(closest - MOST) < 50 else MOST
    wanted = -(-inner // (width * splits))
    closest = _nearest_divisor(inner, wanted)
    return max(closest, LEAST) if abs(closest - wanted) < near else wanted


def _nearest_divisor(number: int, wanted: int) -> int:
    below = (divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0)
    return min((side for divisor in below for side in (divisor, number // divisor)), key=lambda one: abs(one - wanted))


def _reduced(op: Op, source: TensorType) -> list[int]:
    """Reduced dimensions of more than one element, in order."""
    dims = op.arg("dim")
    named = dims if isinstance(dims, tuple) else (dims,)
    rank = len(source.shape)
    found = sorted(dim % rank for dim in named if isinstance(dim, int) and rank) or range(rank)
    return [dim for dim in found if source.shape[dim] > 1]


def _full_reads(graph: Graph, ref: Ref, computed: Callable[[str], Op | None]) -> frozenset[Read]:
    """Reads of the computation of a value that vary along all its loops."""
    known: dict[Ref, frozenset[Read]] = {}
    pending = [ref]
    while pending:
        one = pending[-1]
        op = computed(one.name)
        sources = _sources(graph, op, graph.type_of(one)) if op is not None else None
        unknown = [source for source in sources or () if source not in known]
        if unknown:
            pending += unknown
            continue
        pending.pop()
        if op is None or sources is None:
            known[one] = frozenset(((one.name, dense(graph.type_of(one))),))
        else:
            known[one] = frozenset(
                (name, _seen(graph, op, source, strides)) for source in sources for name, strides in known[source]
            )
    return known[ref]


def _sources(graph: Graph, op: Op, kind: TensorType) -> list[Ref] | None:
    """Operands that vary along all loops over the result; None if the operands are realized."""
    role = operators.lookup(op).role
    if operators.lookup(op).indirect:  # the order of its reads is unknown
        return []
    if role is Role.VIEW and op.refs():
        return [op.refs()[0]]
    if role in (Role.POINTWISE, Role.CONCAT):
        return [ref for ref in op.refs() if _spans(graph.type_of(ref).shape, kind.shape)]
    return None


def _seen(graph: Graph, op: Op, source: Ref, strides: Strides | None) -> Strides | None:
    """Strides at which loops over an operator's result read what its operand reads.

    Along the dimension of a concatenation `SizeVarAllocator.stride_hints` finds stride 0, because the inputs begin at
    different offsets.
    """
    if operators.lookup(op).role is Role.VIEW:
        return read_through(op, graph.type_of(source), strides, op.type)
    dim = op.arg("dim", 0)
    if op.base != "cat" or strides is None or not isinstance(dim, int):
        return strides
    return tuple(0 if axis == dim % len(strides) else step for axis, step in enumerate(strides))


def _spans(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether a tensor of a shape varies along all dimensions of the tensor that it is broadcast to."""
    return len(shape) == len(whole) and all(size > 1 for size, all_of in zip(shape, whole, strict=True) if all_of > 1)
