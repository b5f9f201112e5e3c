"""Selective recomputation: saved activations to recompute in the backward pass instead.

Bidirectional analysis of Echo (Zheng et al., ISCA 2020). The backward sweep walks from each saved activation to its
sources, and stops at compute-heavy operators, whose results must be saved instead. The forward sweep accepts a
recomputation only if it lowers the bytes saved. Activations with a common new source are accepted or rejected together,
and a source of several activations counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref
from costmodel.ir import operators as operators_module
from costmodel.ir.op_table import Role
from costmodel.memory.saved_tensors import SavedTensors, saved_activations
from costmodel.memory.storages import rounded, versions

TimeUs = Callable[[Op], float]
"""Device time of an operator in eager execution, microseconds."""


@dataclass(frozen=True, slots=True)
class Recomputation:
    """Gain and cost of recomputation.

    Attributes:
        values: activations that are recomputed.
        ops: names of the operators that run a second time, in execution order.
        stashed_before, stashed_after: bytes of saved activations without and with recomputation; never more after.
        added_us: device time of the recomputed operators.
    """

    values: tuple[Ref, ...]
    ops: tuple[str, ...]
    stashed_before: int
    stashed_after: int
    added_us: float

    @property
    def saved_bytes(self) -> int:
        """Bytes of activations that are no longer saved."""
        return self.stashed_before - self.stashed_after


def is_heavy(op: Op) -> bool:
    """Whether an operator is never recomputed: a library call, a random result, or an unknown operator."""
    row = operators_module.lookup(op)
    return row.role is Role.EXTERN or row.random or not row.supported


def recompute(graph: Graph, saved: Sequence[SavedTensors], time_us: TimeUs) -> Recomputation:
    """Choose the activations to recompute.

    Args:
        graph: captured in training mode.
        saved: tensors that its operators save.
        time_us: device time of an operator.
    """
    paths = Paths(graph, saved_activations(graph, saved))
    chosen = _forward_sweep(paths, _backward_sweep(paths))
    again = paths.operators(chosen)
    order = [op for op in graph.ops if op.name in again]
    return Recomputation(
        values=tuple(sorted(chosen, key=paths.position)),
        ops=tuple(op.name for op in order),
        stashed_before=paths.kept_bytes(()),
        stashed_after=paths.kept_bytes(chosen),
        added_us=sum(map(time_us, order)),
    )


class Paths:
    """Paths by which activations can be recomputed.

    Attributes:
        activations: saved activation -> bytes.
    """

    def __init__(self, graph: Graph, activations: Mapping[Ref, int]) -> None:
        self.activations = activations
        self._graph = graph
        self._version = versions(graph)
        self._ops = {op.name: op for op in graph.ops}
        self._parents: dict[str, tuple[Ref, ...]] = {}
        self._fresh: dict[Ref, frozenset[Ref]] = {}
        self._positions = {op.name: position for position, op in enumerate(graph.ops)}

    def position(self, ref: Ref) -> tuple[int, int]:
        """Position of the operator that computes a value, and index of the result."""
        return self._positions[ref.name], ref.index

    def parents(self, ref: Ref) -> tuple[Ref, ...]:
        """Operands of the operator that computes a value, without parameters and inputs."""
        if ref.name not in self._parents:
            found = dict.fromkeys(self._version[used] for used in self._ops[ref.name].refs())
            self._parents[ref.name] = tuple(parent for parent in found if parent.name in self._ops)
        return self._parents[ref.name]

    def fixed(self, ref: Ref) -> bool:
        """Whether a value cannot be recomputed, because a heavy operator computes it."""
        return is_heavy(self._ops[ref.name])

    def walk(self, targets: Iterable[Ref], kept: Collection[Ref]) -> tuple[set[Ref], set[Ref]]:
        """Values to recompute for `targets`, and the sources that they are computed from.

        Sources are values in `kept` and results of heavy operators.
        """
        again, sources = set[Ref](), set[Ref]()
        pending = list(targets)
        while pending:
            ref = pending.pop()
            if ref in again:
                continue
            again.add(ref)
            for parent in self.parents(ref):
                if parent in kept or self.fixed(parent):
                    sources.add(parent)
                else:
                    pending.append(parent)
        return again, sources

    def fresh_sources(self, target: Ref) -> frozenset[Ref]:
        """Results of heavy operators that `target` is computed from and that are not saved yet."""
        pending = [target]
        while pending:
            ref = pending[-1]
            light = [parent for parent in self.parents(ref) if not self.fixed(parent)]
            if missing := [parent for parent in light if parent not in self._fresh]:
                pending += missing
                continue
            heavy = (parent for parent in self.parents(ref) if self.fixed(parent) and parent not in self.activations)
            self._fresh[ref] = frozenset(heavy).union(*(self._fresh[parent] for parent in light))
            pending.pop()
        return self._fresh[target]

    def operators(self, chosen: Collection[Ref]) -> set[str]:
        """Names of the operators that are recomputed for the activations `chosen`."""
        again, _ = self.walk(chosen, self.activations.keys() - chosen)
        return {ref.name for ref in again}

    def kept_bytes(self, chosen: Collection[Ref]) -> int:
        """Bytes that are saved if `chosen` are recomputed, each tensor once."""
        kept = self.activations.keys() - chosen
        _, sources = self.walk(chosen, kept)
        return sum(self.nbytes(ref) for ref in kept | sources)

    def nbytes(self, ref: Ref) -> int:
        """Bytes that the allocator counts for a value."""
        return self.activations.get(ref) or rounded(self._graph.type_of(ref).nbytes)


def _backward_sweep(paths: Paths) -> list[tuple[Ref, ...]]:
    """Groups of activations that light operators can recompute; those with a common new source are one group."""
    groups: dict[int, tuple[set[Ref], set[Ref]]] = {}
    owner: dict[Ref, int] = {}  # the group that a new source belongs to
    for number, target in enumerate(sorted(paths.activations, key=paths.position, reverse=True)):
        if paths.fixed(target):
            continue
        fresh = paths.fresh_sources(target)
        joined = [groups.pop(of) for of in {owner[source] for source in fresh if source in owner}]
        members = {target}.union(*(found for found, _ in joined))
        sources = set(fresh).union(*(found for _, found in joined))
        groups[number] = members, sources
        owner |= dict.fromkeys(sources, number)
    return [tuple(sorted(members, key=paths.position)) for members, _ in groups.values()]


class Selection:
    """Activations chosen for recomputation, with an incremental count of the bytes that stay saved.

    Attributes:
        chosen: activations to recompute.
        nbytes: bytes saved: of activations that are not chosen, and of sources of the chosen ones, each once.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.chosen: set[Ref] = set()
        self._readers: Counter[Ref] = Counter()  # number of recomputed readers of each value
        self._again: set[Ref] = set()
        self.nbytes = sum(map(paths.nbytes, paths.activations))

    def add(self, group: Iterable[Ref]) -> None:
        """Choose more activations."""
        for ref in group:
            self.chosen.add(ref)
            self.nbytes -= self._paths.nbytes(ref)
        pending = [ref for ref in group if ref not in self._again]
        while pending:
            ref = pending.pop()
            if ref in self._again:
                continue
            self._again.add(ref)
            for parent in self._paths.parents(ref):
                self._readers[parent] += 1
                if self._ends_at(parent):
                    if self._readers[parent] == 1 and parent not in self._paths.activations:
                        self.nbytes += self._paths.nbytes(parent)
                else:
                    pending.append(parent)

    def remove(self, group: Iterable[Ref]) -> None:
        """Save activations after all; undoes `add`."""
        for ref in group:
            self.chosen.discard(ref)
            self.nbytes += self._paths.nbytes(ref)
        pending = list(group)
        while pending:
            ref = pending.pop()
            if ref not in self._again or not (self._ends_at(ref) or self._idle(ref)):
                continue
            self._again.discard(ref)
            for parent in self._paths.parents(ref):
                self._readers[parent] -= 1
                if parent in self._again:
                    pending.append(parent)
                elif self._readers[parent] == 0 and parent not in self._paths.activations:
                    self.nbytes -= self._paths.nbytes(parent)

    def _ends_at(self, ref: Ref) -> bool:
        """Whether a value is available without recomputation."""
        return (ref in self._paths.activations and ref not in self.chosen) or self._paths.fixed(ref)

    def _idle(self, ref: Ref) -> bool:
        return ref not in self.chosen and self._readers[ref] == 0


def _forward_sweep(paths: Paths, groups: Iterable[tuple[Ref, ...]]) -> frozenset[Ref]:
    """Activations of the groups that lower the bytes saved; then, in execution order, without useless ones.

    An activation that stays saved is itself a source for later ones, so the order matters.
    """
    selection = Selection(paths)
    for group in sorted(groups, key=lambda members: paths.position(members[0])):
        before = selection.nbytes
        selection.add(group)
        if selection.nbytes >= before:
            selection.remove(group)
    for ref in sorted(selection.chosen, key=paths.position):
        before = selection.nbytes
        selection.remove((ref,))
        if selection.nbytes > before:
            selection.add((ref,))
    return frozenset(selection.chosen)
