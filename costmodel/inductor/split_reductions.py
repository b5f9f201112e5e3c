"""How Inductor makes a reduction: in one kernel, or in levels where it has too few results to fill a GPU.

The rules are those of `Reduction.num_splits` and `InductorChoices.reduction_split_factor` in torch/_inductor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref, TensorType, operators
from costmodel.ir.op_table import Role
from costmodel.ir.strides import Strides, dense, read_through

MULTIPROCESSORS = 132
"""Of the H100 and H200."""
THREADS = 2048
"""That a multiprocessor holds."""
LEAST, MOST = 32, 512
"""Elements that a thread sums."""
BLOCK = 256
"""Threads of a block that sums neighbours in memory."""
ROWS = 4
"""Elements that a thread of another block takes at once."""
INDIRECT = ("embedding", "gather", "index", "index_select")
"""Operators that look up where to read, which tells nothing of the order."""
Read = tuple[str, Strides | None]
"""A tensor, and how the loops that read it walk its memory; None where nothing tells."""


def reduction_outer(op: Op, source: TensorType) -> int:
    """How many independent reductions an operator makes."""
    if op.type.numel == source.numel and op.base in ("_log_softmax", "cumsum"):
        dim = op.arg("dim", -1)
        return source.numel // max(1, source.shape[dim if isinstance(dim, int) else -1])
    return max(1, op.type.numel)


@dataclass(frozen=True, slots=True)
class SplitReduction:
    """How a reduction is made.

    Attributes:
        levels: kernels that it takes on a GPU, each of which reads what the one before has summed.
        crosswise: whether its loops go against the order in memory of what they read in rows, so that loops over all
            elements do not follow them: channels in groups that lie channels last.
    """

    levels: int
    crosswise: bool


def split_reduction(graph: Graph, op: Op, computed: Callable[[str], Op | None]) -> SplitReduction:
    """How Inductor makes a reduction of what is read in memory.

    Args:
        graph: with the operator.
        op: the reduction.
        computed: value -> the operator that computes it where it is used; None of what is read from memory.
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
    count = levels(outer, max(1, source.numel // outer), contiguous, in_runs)
    return SplitReduction(count, crosswise=contiguous and not in_runs)


def levels(outer: int, inner: int, contiguous: bool, in_runs: bool) -> int:
    """Of `outer` results, each of `inner` elements.

    Args:
        outer: results.
        inner: elements of each.
        contiguous: whether neighbours along any dimension that is reduced are neighbours in memory.
        in_runs: whether those along the last are: the parts of a result are runs along it.
    """
    parts = split_factor(outer, inner, contiguous)
    return 1 if parts == 1 else 1 + levels(outer * parts, -(-inner // parts), in_runs, in_runs)


def split_factor(outer: int, inner: int, contiguous: bool) -> int:
    """In how many parts each result is made first; 1 is unsplit.

    Args:
        outer: results.
        inner: elements of each.
        contiguous: whether neighbours that are reduced are neighbours in memory.
    """
    if outer > 1 and (inner <= LEAST or outer >= 2 * LEAST * MULTIPROCESSORS):
        return 1
    if contiguous or outer == 1:
        if outer >= 2 * MULTIPROCESSORS or inner <= LEAST * BLOCK:
            return 1
        per_thread = _per_thread(outer, inner, BLOCK, MULTIPROCESSORS * THREADS // (2 * BLOCK), outer, near=30)
        return -(-inner // (per_thread * BLOCK))
    blocks = -(-outer // 128)
    per_thread = _per_thread(outer, inner, ROWS, MULTIPROCESSORS * THREADS // BLOCK, blocks, near=20)
    return -(-inner // (per_thread * ROWS))


def _per_thread(outer: int, inner: int, width: int, target: int, columns: int, near: int) -> int:
    """Elements that a thread sums, if `target` blocks fill the GPU; rather a divisor of all, if one is near."""
    threads = MULTIPROCESSORS * THREADS
    if outer * inner <= LEAST * threads:
        return LEAST
    if outer * inner >= MOST * threads:
        closest = _nearest_divisor(inner, MOST)
        return closest if abs(closest - MOST) < 50 else MOST
    wanted = -(-inner // (width * -(-target // columns)))
    closest = _nearest_divisor(inner, wanted)
    return max(closest, LEAST) if abs(closest - wanted) < near else wanted


def _nearest_divisor(number: int, wanted: int) -> int:
    below = (divisor for divisor in range(1, math.isqrt(number) + 1) if number % divisor == 0)
    return min((side for divisor in below for side in (divisor, number // divisor)), key=lambda one: abs(one - wanted))


def _reduced(op: Op, source: TensorType) -> list[int]:
    """The dimensions that an operator reduces, of more than one element, the last last."""
    dims = op.arg("dim")
    named = dims if isinstance(dims, tuple) else (dims,)
    rank = len(source.shape)
    found = sorted(dim % rank for dim in named if isinstance(dim, int) and rank) or range(rank)
    return [dim for dim in found if source.shape[dim] > 1]


def _full_reads(graph: Graph, ref: Ref, computed: Callable[[str], Op | None]) -> frozenset[Read]:
    """What computing a value reads that varies along all its loops."""
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
    """Of what an operator is given, what varies along all loops over its result; None if it keeps that in memory."""
    role = operators.lookup(op).role
    if op.base in INDIRECT:
        return []
    if role is Role.VIEW and op.refs():
        return [op.refs()[0]]
    if role in (Role.POINTWISE, Role.CONCAT):
        return [ref for ref in op.refs() if _spans(graph.type_of(ref).shape, kind.shape)]
    return None


def _seen(graph: Graph, op: Op, source: Ref, strides: Strides | None) -> Strides | None:
    """How loops over an operator's result walk what its operand reads.

    Along the dimension of a concatenation `SizeVarAllocator.stride_hints` sees no steps, for the inputs' begins differ.
    """
    if operators.lookup(op).role is Role.VIEW:
        return read_through(op, graph.type_of(source), strides, op.type)
    dim = op.arg("dim", 0)
    if op.base != "cat" or strides is None or not isinstance(dim, int):
        return strides
    return tuple(0 if axis == dim % len(strides) else step for axis, step in enumerate(strides))


def _spans(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Whether what has a shape varies along all dimensions of a whole that it is a part of."""
    return len(shape) == len(whole) and all(size > 1 for size, all_of in zip(shape, whole, strict=True) if all_of > 1)
