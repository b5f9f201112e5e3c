"""Which modules to checkpoint: the recomputation that `torch.utils.checkpoint` can do.

A checkpointed module keeps its inputs and, under a policy, the results of its compute-heavy operators; everything else
in it is computed again, all at once, when the backward pass reaches it. So few large modules entry least but need most
when they are reached; the choice is the one for which the entry and the largest module's need together are smallest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref, operators
from costmodel.ir.op_table import Role
from costmodel.memory.recompute import TimeUs, is_heavy
from costmodel.memory.saved_tensors import SavedTensors, saved_activations
from costmodel.memory.storages import rounded, versions

_LIMITS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
"""Shares of the entry that one module may compute again, tried in turn."""


@dataclass(frozen=True, slots=True)
class CheckpointedModules:
    """A choice of modules.

    Attributes:
        modules: their names, in execution order; none lies in another.
        stashed_before, stashed_after: bytes kept between the passes without and with it.
        again_bytes: the most that one of them computes again at once.
        added_us: device time of the operators that run a second time.
    """

    modules: tuple[str, ...]
    stashed_before: int
    stashed_after: int
    again_bytes: int
    added_us: float

    @property
    def need_bytes(self) -> int:
        """What is kept, and what the largest module adds to it when it is reached."""
        return self.stashed_after + self.again_bytes


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    ops: range
    keeps: frozenset[Ref]
    again: frozenset[Ref]


def choose_modules(graph: Graph, saved: Sequence[SavedTensors], time_us: TimeUs) -> CheckpointedModules:
    """The modules to checkpoint; none where it does not pay.

    Args:
        graph: captured in training mode.
        saved: what its operators save.
        time_us: device time of an operator.
    """
    total = sum(saved_activations(graph, saved).values())
    regions = _candidates(graph, saved)
    best = _priced(graph, saved, (), time_us)
    for share in _LIMITS:
        chosen = _outermost([region for region in regions if _nbytes(graph, region.again) <= share * total])
        priced = _priced(graph, saved, _pruned(graph, saved, chosen), time_us)
        best = min(best, priced, key=lambda choice: (choice.need_bytes, choice.added_us))
    return best


def _candidates(graph: Graph, saved: Sequence[SavedTensors]) -> list[_Candidate]:
    """Modules that run once, in one piece, and in which something but the last operator is computed again."""
    runs: dict[str, list[range]] = {}
    for position, op in enumerate(graph.ops):
        for name in _enclosing(op.module):
            pieces = runs.setdefault(name, [])
            if pieces and pieces[-1].stop == position:
                pieces[-1] = range(pieces[-1].start, position + 1)
            else:
                pieces.append(range(position, position + 1))
    version = versions(graph)
    heavy = {op.name for op in graph.ops if _is_kept(op)}
    given = {value.name for value in graph.values}
    saved: dict[int, list[Ref]] = {}
    for entry in saved:
        saved.setdefault(entry.op, []).extend(ref for ref in entry.values if ref.name not in given)
    regions = [
        _region(graph, saved, version, heavy, given, name, pieces[0])
        for name, pieces in runs.items()
        if len(pieces) == 1
    ]
    return [region for region in regions if region is not None]


def _enclosing(module: str) -> list[str]:
    """`a`, `a.b`, `a.b.c` of `a.b.c`."""
    parts = module.split(".") if module else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _region(
    graph: Graph,
    saved: Mapping[int, Sequence[Ref]],
    version: Mapping[Ref, Ref],
    heavy: Collection[str],
    given: Collection[str],
    name: str,
    span: range,
) -> _Candidate | None:
    inside = {graph.ops[position].name for position in span}
    keeps: set[Ref] = set()
    for position in span:
        op = graph.ops[position]
        outside = [version[ref] for ref in op.refs() if version[ref].name not in inside]
        keeps.update(ref for ref in outside if ref.name not in given)
        if _is_kept(op):
            keeps.update(Ref(op.name, index) for index in range(len(op.types)))
        if op.inplace and outside and outside[0].name not in given:
            return None  # it writes over its own input, which computing again would read
        if op.inplace and len(op.refs()) > 1 and version[op.refs()[0]].name in heavy:
            return None  # `y += x` on what is kept; a module with an `inplace` flag can be told not to
    again = frozenset({ref for position in span for ref in saved.get(position, ())} - keeps)
    return _Candidate(name, span, frozenset(keeps), again) if again else None


def _is_kept(op: Op) -> bool:
    """Whether the policy keeps an operator's results. Random results are drawn again from the same state."""
    return is_heavy(op) and operators.lookup(op).role is Role.EXTERN


def _outermost(regions: Sequence[_Candidate]) -> list[_Candidate]:
    chosen: list[_Candidate] = []
    for region in sorted(regions, key=lambda region: (region.ops.start, -len(region.ops), len(region.name))):
        if not chosen or region.ops.start >= chosen[-1].ops.stop:
            chosen.append(region)
    return chosen


def _pruned(graph: Graph, saved: Sequence[SavedTensors], chosen: Sequence[_Candidate]) -> list[_Candidate]:
    """Without the regions that shrink nothing; regions share no operator, so each is judged by what it holds alone."""
    maps = saved_activations(graph, saved)
    saved: dict[int, list[Ref]] = {}
    for entry in saved:
        saved.setdefault(entry.op, []).extend(ref for ref in entry.values if ref in maps)
    covered = {position for region in chosen for position in region.ops}
    holders = Counter(ref for region in chosen for ref in region.keeps)
    holders.update(ref for position, refs in saved.items() if position not in covered for ref in refs)
    kept = []
    for region in chosen:
        holders.subtract(region.keeps)
        freed = {ref for ref in region.keeps if not holders[ref]}
        back = [ref for position in region.ops for ref in saved.get(position, ())]
        stashed_again = {ref for ref in back if not holders[ref]}
        if _nbytes(graph, stashed_again) <= _nbytes(graph, freed):
            holders.update(back)
        else:
            holders.update(region.keeps)
            kept.append(region)
    return kept


def _priced(
    graph: Graph, saved: Sequence[SavedTensors], chosen: Sequence[_Candidate], time_us: TimeUs
) -> CheckpointedModules:
    again = [graph.ops[position] for region in chosen for position in region.ops]
    return CheckpointedModules(
        modules=tuple(region.name for region in chosen),
        stashed_before=_kept_bytes(graph, saved, ()),
        stashed_after=_kept_bytes(graph, saved, chosen),
        again_bytes=max((_nbytes(graph, region.again) for region in chosen), default=0),
        added_us=sum(time_us(op) for op in again if not _is_kept(op)),
    )


def _kept_bytes(graph: Graph, saved: Sequence[SavedTensors], chosen: Sequence[_Candidate]) -> int:
    covered = {position for region in chosen for position in region.ops}
    outside = [entry for entry in saved if entry.op not in covered]
    kept = frozenset(saved_activations(graph, outside)).union(*(region.keeps for region in chosen))
    return _nbytes(graph, kept)


def _nbytes(graph: Graph, refs: Collection[Ref]) -> int:
    return sum(rounded(graph.type_of(ref).nbytes) for ref in refs)
