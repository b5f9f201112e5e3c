"""Choice of modules to checkpoint: the recomputation that `torch.utils.checkpoint` can do.

A checkpointed module saves its inputs and, by a policy, the results of its compute-heavy operators. All its other
values are recomputed at once when the backward pass reaches it. A few large modules keep the fewest bytes between the
passes, but need the most when they are reached. The choice minimises the bytes kept plus the largest module's need.
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
"""Shares of the saved activations that one module may recompute, tried in turn."""


@dataclass(frozen=True, slots=True)
class CheckpointedModules:
    """Choice of modules to checkpoint.

    Attributes:
        modules: names in execution order; none is inside another.
        stashed_before, stashed_after: bytes saved between the passes without and with checkpointing.
        again_bytes: most bytes that one module recomputes at once.
        added_us: device time of the recomputed operators.
        operators: operators of the modules, recomputed or not: the policy is asked about each.
    """

    modules: tuple[str, ...]
    stashed_before: int
    stashed_after: int
    again_bytes: int
    added_us: float
    operators: int = 0

    @property
    def need_bytes(self) -> int:
        """Bytes saved between the passes, and bytes that the largest module adds when it is reached."""
        return self.stashed_after + self.again_bytes


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    ops: range
    keeps: frozenset[Ref]
    again: frozenset[Ref]


def choose_modules(graph: Graph, saved: Sequence[SavedTensors], time_us: TimeUs) -> CheckpointedModules:
    """Choose the modules to checkpoint; none if it does not pay.

    Args:
        graph: captured in training mode.
        saved: tensors that its operators save.
        time_us: device time of an operator.
    """
    total = sum(saved_activations(graph, saved).values())
    regions = _candidates(graph, saved)
    best = _evaluated(graph, saved, (), time_us)
    for share in _LIMITS:
        chosen = _outermost([region for region in regions if _nbytes(graph, region.again) <= share * total])
        evaluated = _evaluated(graph, saved, _pruned(graph, saved, chosen), time_us)
        best = min(best, evaluated, key=lambda choice: (choice.need_bytes, choice.added_us))
    return best


def _candidates(graph: Graph, saved: Sequence[SavedTensors]) -> list[_Candidate]:
    """Modules that run once, without interruption, and have values to recompute."""
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
    saved_at: dict[int, list[Ref]] = {}
    for entry in saved:
        saved_at.setdefault(entry.op, []).extend(ref for ref in entry.values if ref.name not in given)
    found = [
        _candidate(graph, saved_at, version, heavy, given, name, pieces[0])
        for name, pieces in runs.items()
        if len(pieces) == 1
    ]
    return [candidate for candidate in found if candidate is not None]


def _enclosing(module: str) -> list[str]:
    """`a`, `a.b`, `a.b.c` of `a.b.c`."""
    parts = module.split(".") if module else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _candidate(
    graph: Graph,
    saved_at: Mapping[int, Sequence[Ref]],
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
            return None  # it overwrites its own input, which recomputation would read
        if op.inplace and op.refs() and version[op.refs()[0]].name in heavy and not _is_of_activation_module(graph, op):
            return None  # `y += x` on a saved result; only modules with an `inplace` flag can be changed
    again = frozenset({ref for position in span for ref in saved_at.get(position, ())} - keeps)
    return _Candidate(name, span, frozenset(keeps), again) if again else None


def _is_of_activation_module(graph: Graph, op: Op) -> bool:
    """Whether an operator that writes in place is all of a module, such as `nn.ReLU(inplace=True)`.

    `F.relu(self.linear(x), inplace=True)` is of a module with others inside or beside it.
    """
    around = [other for other in graph.ops if f"{other.module}.".startswith(f"{op.module}.")]
    return len(op.refs()) == 1 and all(other.op == op.op for other in around)


def _is_kept(op: Op) -> bool:
    """Whether the policy saves an operator's results. Random results are drawn again from the same state."""
    return is_heavy(op) and operators.lookup(op).role is Role.EXTERN


def _outermost(regions: Sequence[_Candidate]) -> list[_Candidate]:
    chosen: list[_Candidate] = []
    for region in sorted(regions, key=lambda region: (region.ops.start, -len(region.ops), len(region.name))):
        if not chosen or region.ops.start >= chosen[-1].ops.stop:
            chosen.append(region)
    return chosen


def _pruned(graph: Graph, saved: Sequence[SavedTensors], chosen: Sequence[_Candidate]) -> list[_Candidate]:
    """Drop modules that save no memory; modules share no operator, so each is judged by what it alone holds."""
    activations = saved_activations(graph, saved)
    saved_at: dict[int, list[Ref]] = {}
    for entry in saved:
        saved_at.setdefault(entry.op, []).extend(ref for ref in entry.values if ref in activations)
    covered = {position for region in chosen for position in region.ops}
    holders = Counter(ref for region in chosen for ref in region.keeps)
    holders.update(ref for position, refs in saved_at.items() if position not in covered for ref in refs)
    kept = []
    for region in chosen:
        holders.subtract(region.keeps)
        freed = {ref for ref in region.keeps if not holders[ref]}
        back = [ref for position in region.ops for ref in saved_at.get(position, ())]
        saved_instead = {ref for ref in back if not holders[ref]}
        if _nbytes(graph, saved_instead) <= _nbytes(graph, freed):
            holders.update(back)
        else:
            holders.update(region.keeps)
            kept.append(region)
    return kept


def _evaluated(
    graph: Graph, saved: Sequence[SavedTensors], chosen: Sequence[_Candidate], time_us: TimeUs
) -> CheckpointedModules:
    again = [graph.ops[position] for region in chosen for position in region.ops]
    return CheckpointedModules(
        modules=tuple(region.name for region in chosen),
        stashed_before=_saved_bytes(graph, saved, ()),
        stashed_after=_saved_bytes(graph, saved, chosen),
        again_bytes=max((_nbytes(graph, region.again) for region in chosen), default=0),
        added_us=sum(time_us(op) for op in again if not _is_kept(op)),
        operators=len(again),
    )


def _saved_bytes(graph: Graph, saved: Sequence[SavedTensors], chosen: Sequence[_Candidate]) -> int:
    covered = {position for region in chosen for position in region.ops}
    outside = [entry for entry in saved if entry.op not in covered]
    kept = frozenset(saved_activations(graph, outside)).union(*(region.keeps for region in chosen))
    return _nbytes(graph, kept)


def _nbytes(graph: Graph, refs: Collection[Ref]) -> int:
    return sum(rounded(graph.type_of(ref).nbytes) for ref in refs)
