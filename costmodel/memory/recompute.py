"""Selective recomputation: which feature maps to compute again in the backward pass instead of keeping them.

The bidirectional analysis of Echo (Zheng et al., ISCA 2020). The backward sweep walks from each feature map towards
what it was computed from and stops at compute-heavy operators, whose results become what must be kept in its place. The
forward sweep keeps a recomputation only where fewer bytes are stashed with it than without. Feature maps that would be
recomputed from the same kept tensor stand or fall together, and a tensor kept for several counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from costmodel.ir import Graph, Op, Ref
from costmodel.ir import operators as operators_module
from costmodel.ir.op_table import Role
from costmodel.memory.saved_tensors import Stash, feature_maps
from costmodel.memory.storages import rounded, versions

TimeUs = Callable[[Op], float]
"""Device time of an operator in eager execution, microseconds."""


@dataclass(frozen=True, slots=True)
class Recomputation:
    """What recomputing brings and costs.

    Attributes:
        values: the feature maps that are computed again.
        ops: names of the operators that run a second time, in execution order.
        stashed_before, stashed_after: bytes of feature maps without and with it; after is never more than before.
        added_us: device time of the operators that run again.
    """

    values: tuple[Ref, ...]
    ops: tuple[str, ...]
    stashed_before: int
    stashed_after: int
    added_us: float

    @property
    def saved_bytes(self) -> int:
        """Bytes of feature maps that are no longer kept."""
        return self.stashed_before - self.stashed_after


def is_heavy(op: Op) -> bool:
    """Whether an operator is never run again: a library call, a random result, or one that nobody knows."""
    row = operators_module.lookup(op)
    return row.role is Role.EXTERN or row.random or not row.supported


def recompute(graph: Graph, stashed: Sequence[Stash], time_us: TimeUs) -> Recomputation:
    """The feature maps worth computing again.

    Args:
        graph: captured in training mode.
        stashed: what its operators save.
        time_us: device time of an operator.
    """
    paths = Paths(graph, feature_maps(graph, stashed))
    chosen = _forward_sweep(paths, _backward_sweep(paths))
    again = paths.operators(chosen)
    order = [op for op in graph.ops if op.name in again]
    return Recomputation(
        values=tuple(sorted(chosen, key=paths.position)),
        ops=tuple(op.name for op in order),
        stashed_before=paths.stashed_bytes(()),
        stashed_after=paths.stashed_bytes(chosen),
        added_us=sum(map(time_us, order)),
    )


class Paths:
    """The ways in which feature maps can be computed again."""

    def __init__(self, graph: Graph, stashed: Mapping[Ref, int]) -> None:
        self.stashed = stashed
        self._graph = graph
        self._version = versions(graph)
        self._ops = {op.name: op for op in graph.ops}
        self._parents: dict[str, tuple[Ref, ...]] = {}
        self._fresh: dict[Ref, frozenset[Ref]] = {}
        self._positions = {op.name: position for position, op in enumerate(graph.ops)}

    def position(self, ref: Ref) -> tuple[int, int]:
        """Where a value is made: its operator's position, and which of its results it is."""
        return self._positions[ref.name], ref.index

    def parents(self, ref: Ref) -> tuple[Ref, ...]:
        """What a value is computed from, without what is there all the time."""
        if ref.name not in self._parents:
            found = dict.fromkeys(self._version[used] for used in self._ops[ref.name].refs())
            self._parents[ref.name] = tuple(parent for parent in found if parent.name in self._ops)
        return self._parents[ref.name]

    def fixed(self, ref: Ref) -> bool:
        """Whether a value can only be kept: a heavy operator made it."""
        return is_heavy(self._ops[ref.name])

    def walk(self, targets: Iterable[Ref], kept: Collection[Ref]) -> tuple[set[Ref], set[Ref]]:
        """The values on the way to `targets` that are computed again, and the sources that they are computed from.

        The way ends at what is kept and at what heavy operators made.
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
        """The values that heavy operators made, that are not stashed yet, and that `target` is computed from."""
        pending = [target]
        while pending:
            ref = pending[-1]
            light = [parent for parent in self.parents(ref) if not self.fixed(parent)]
            if missing := [parent for parent in light if parent not in self._fresh]:
                pending += missing
                continue
            heavy = (parent for parent in self.parents(ref) if self.fixed(parent) and parent not in self.stashed)
            self._fresh[ref] = frozenset(heavy).union(*(self._fresh[parent] for parent in light))
            pending.pop()
        return self._fresh[target]

    def operators(self, chosen: Collection[Ref]) -> set[str]:
        """Names of the operators that run again for the feature maps `chosen`."""
        again, _ = self.walk(chosen, self.stashed.keys() - chosen)
        return {ref.name for ref in again}

    def stashed_bytes(self, chosen: Collection[Ref]) -> int:
        """Bytes that are kept if `chosen` are computed again, each tensor once."""
        kept = self.stashed.keys() - chosen
        _, sources = self.walk(chosen, kept)
        return sum(self.nbytes(ref) for ref in kept | sources)

    def nbytes(self, ref: Ref) -> int:
        """What the allocator counts for a value."""
        return self.stashed.get(ref) or rounded(self._graph.type_of(ref).nbytes)


def _backward_sweep(paths: Paths) -> list[tuple[Ref, ...]]:
    """Feature maps that light operators lead to from what must be kept; those with a common new source together."""
    groups: dict[int, tuple[set[Ref], set[Ref]]] = {}
    owner: dict[Ref, int] = {}  # the group that a new source belongs to
    for number, target in enumerate(sorted(paths.stashed, key=paths.position, reverse=True)):
        if paths.fixed(target):
            continue
        fresh = paths.fresh_sources(target)
        joined = [groups.pop(of) for of in {owner[source] for source in fresh if source in owner}]
        members = {target}.union(*(found for found, _ in joined))
        sources = set(fresh).union(*(found for _, found in joined))
        groups[number] = members, sources
        owner |= dict.fromkeys(sources, number)
    return [tuple(sorted(members, key=paths.position)) for members, _ in groups.values()]


class Choice:
    """Feature maps chosen to be computed again, and what is then kept; it grows and shrinks by what is near a change.

    Attributes:
        chosen: the feature maps.
        nbytes: what is kept: stashed feature maps that are not chosen, and sources of those that are, each once.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.chosen: set[Ref] = set()
        self._readers: Counter[Ref] = Counter()  # how many of the values that are computed again read a value
        self._again: set[Ref] = set()
        self.nbytes = sum(map(paths.nbytes, paths.stashed))

    def add(self, group: Iterable[Ref]) -> None:
        """Chooses more feature maps."""
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
                    if self._readers[parent] == 1 and parent not in self._paths.stashed:
                        self.nbytes += self._paths.nbytes(parent)
                else:
                    pending.append(parent)

    def remove(self, group: Iterable[Ref]) -> None:
        """Keeps feature maps after all; undoes `add`."""
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
                elif self._readers[parent] == 0 and parent not in self._paths.stashed:
                    self.nbytes -= self._paths.nbytes(parent)

    def _ends_at(self, ref: Ref) -> bool:
        """Whether a value is there without computing it again."""
        return (ref in self._paths.stashed and ref not in self.chosen) or self._paths.fixed(ref)

    def _idle(self, ref: Ref) -> bool:
        return ref not in self.chosen and self._readers[ref] == 0


def _forward_sweep(paths: Paths, groups: Iterable[tuple[Ref, ...]]) -> frozenset[Ref]:
    """The feature maps of the groups that shrink the stash; then, in execution order, without those that do not help.

    A feature map that stays stashed is itself a source for those after it, so the order matters.
    """
    choice = Choice(paths)
    for group in sorted(groups, key=lambda members: paths.position(members[0])):
        before = choice.nbytes
        choice.add(group)
        if choice.nbytes >= before:
            choice.remove(group)
    for ref in sorted(choice.chosen, key=paths.position):
        before = choice.nbytes
        choice.remove((ref,))
        if choice.nbytes > before:
            choice.add((ref,))
    return frozenset(choice.chosen)
