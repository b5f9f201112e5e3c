"""Inductor's scheduler: joins realised computations into kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from costmodel.inductor.lowering import Node, Read

DISTANCE_TO_FUSE = 64
"""`Scheduler.are_long_distant_nodes`: loops that only share an input are not joined across so many others."""


def fuse(nodes: Iterable[Node], writers: Mapping[str, tuple[int, ...]]) -> list[Node]:
    """Joins loops over one domain that share what they read, where no cycle comes of it; the kernels in order.

    Args:
        nodes: realised computations in the order of creation, which is topological.
        writers: buffer -> indices of the nodes that write it.
    """
    scheduler = _Scheduler(writers)
    for index, node in enumerate(nodes):
        scheduler.add(index, node)
    return _ordered(scheduler.groups)


class _Scheduler:
    """Groups of nodes so far. A set of groups is a bit mask: bit i is the group at index i."""

    def __init__(self, writers: Mapping[str, tuple[int, ...]]) -> None:
        self.groups: list[Node] = []
        self._writers = writers
        self._group_of: dict[int, int] = {}
        self._readers: dict[Read, set[int]] = {}

    def add(self, index: int, node: Node) -> None:
        """Joins one node to the latest group that takes it, else makes it a group of its own."""
        aligned = self._makers(name for name, order in node.reads if not order)
        shifted = self._makers(name for name, order in node.reads if order)
        sources = aligned | shifted
        near = set().union(*(self._readers.get(read, ()) for read in node.reads))
        siblings = {group for group in near if index - self.groups[group].first <= DISTANCE_TO_FUSE}
        candidates = sorted((aligned | siblings) - shifted, reverse=True)
        target = next((group for group in candidates if self._can_join(node, group, sources)), None)
        ancestors = 0
        for source in sources:
            ancestors |= self.groups[source].ancestors | 1 << source
        if target is None:
            target = len(self.groups)
            self.groups.append(replace(node, ancestors=ancestors, first=index))
        else:
            self._join(target, node, ancestors)
        self._group_of[index] = target
        for read in node.reads:
            self._readers.setdefault(read, set()).add(target)

    def _makers(self, names: Iterable[str]) -> set[int]:
        return {self._group_of[writer] for name in names for writer in self._writers.get(name, ())}

    def _can_join(self, node: Node, target: int, sources: Iterable[int]) -> bool:
        group = self.groups[target]
        if node.extern or group.extern or node.launches > 1 or group.launches > 1:
            return False
        if any(self.groups[source].ancestors >> target & 1 for source in sources if source != target):
            return False
        if group.inner == 1 or node.inner == 1:
            plain, reducing = (group, node) if group.inner == 1 else (node, group)
            return plain.outer == reducing.outer or (plain.outer == reducing.domain and not reducing.crosswise)
        return (group.outer, group.inner) == (node.outer, node.inner)

    def _join(self, target: int, node: Node, ancestors: int) -> None:
        """Puts a node into a group; what comes before it comes before every group that follows the group."""
        group = self.groups[target]
        group.ops = list(dict.fromkeys([*group.ops, *node.ops]))
        group.makes = [*group.makes, *node.makes]
        group.reads |= node.reads
        group.ancestors |= ancestors & ~(1 << target)
        if node.inner > 1:
            group.outer, group.inner, group.crosswise = node.outer, node.inner, node.crosswise
        for follower in self.groups:
            if follower.ancestors >> target & 1:
                follower.ancestors |= group.ancestors


def _ordered(groups: list[Node]) -> list[Node]:
    """A topological order that keeps to the order of creation where it can."""
    done, order = 0, []
    pending = list(range(len(groups)))
    while pending:
        ready = next(index for index in pending if groups[index].ancestors & ~done == 0)
        pending.remove(ready)
        done |= 1 << ready
        order.append(groups[ready])
    return order
