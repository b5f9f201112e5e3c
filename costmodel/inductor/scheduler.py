"""Inductor's scheduler: fuses lowered nodes into kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from costmodel.inductor.lowering import Node, Read

DISTANCE_TO_FUSE = 64
"""`Scheduler.are_long_distant_nodes`: nodes that only share an input are not fused across so many others."""


def fuse(nodes: Iterable[Node], writers: Mapping[str, tuple[int, ...]], joins_split: bool = False) -> list[Node]:
    """Fuse loops over one domain that share reads, unless that makes a cycle; the kernels in order.

    Args:
        nodes: lowered nodes in the order of creation, which is topological.
        writers: indices of the nodes that write each buffer.
        joins_split: whether split reductions of one size fuse, level by level, as the sums of a batch norm's gradient
            do, and loops over their results with the last level.
    """
    scheduler = _Scheduler(writers, joins_split)
    for index, node in enumerate(nodes):
        scheduler.add(index, node)
    return _ordered(scheduler.groups)


@dataclass(slots=True)
class _Group:
    """Fused nodes.

    Attributes:
        node: all of them as one node.
        ancestors: bit mask of the groups that must run before it.
        first: index of its first node.
    """

    node: Node
    ancestors: int
    first: int


class _Scheduler:
    """Fused groups so far. A set of groups is a bit mask: bit i is the group at index i."""

    def __init__(self, writers: Mapping[str, tuple[int, ...]], joins_split: bool = False) -> None:
        self.groups: list[_Group] = []
        self._writers, self._joins_split = writers, joins_split
        self._group_of: dict[int, int] = {}
        self._readers: dict[Read, set[int]] = {}

    def add(self, index: int, node: Node) -> None:
        """Fuse a node into the latest group that it can join; else start a group."""
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
            self.groups.append(_Group(node, ancestors, index))
        else:
            self._join(target, node, ancestors)
        self._group_of[index] = target
        for read in node.reads:
            self._readers.setdefault(read, set()).add(target)

    def _makers(self, names: Iterable[str]) -> set[int]:
        return {self._group_of[writer] for name in names for writer in self._writers.get(name, ())}

    def _can_join(self, node: Node, target: int, sources: Iterable[int]) -> bool:
        group = self.groups[target].node
        if node.extern or group.extern:
            return False
        if (node.launches > 1 or group.launches > 1) and not (self._joins_split and _are_alike(node, group)):
            return False
        if any(self.groups[source].ancestors >> target & 1 for source in sources if source != target):
            return False
        if group.inner == 1 or node.inner == 1:
            plain, reducing = (group, node) if group.inner == 1 else (node, group)
            return plain.outer == reducing.outer or (plain.outer == reducing.domain and not reducing.crosswise)
        return (group.outer, group.inner) == (node.outer, node.inner)

    def _join(self, target: int, node: Node, ancestors: int) -> None:
        """Fuse a node into a group; ancestors of the node become ancestors of every group after that group."""
        group = self.groups[target]
        loops = node if node.inner > 1 else group.node
        group.node = replace(
            group.node,
            ops=tuple(dict.fromkeys((*group.node.ops, *node.ops))),
            makes=(*group.node.makes, *node.makes),
            reads=group.node.reads | node.reads,
            outer=loops.outer,
            inner=loops.inner,
            launches=max(group.node.launches, node.launches),
            crosswise=loops.crosswise,
        )
        group.ancestors |= ancestors & ~(1 << target)
        for follower in self.groups:
            if follower.ancestors >> target & 1:
                follower.ancestors |= group.ancestors


def _are_alike(node: Node, group: Node) -> bool:
    """Whether two nodes fuse, of which one has several kernels: equal split reductions, or loops over their results.

    A scatter fuses with nothing: all its atomic additions end before the sums are read
    (`Scheduler.mode_requires_synchronization`).
    """
    if any(one.launches > 1 and one.inner == 1 for one in (node, group)):
        return False
    if node.inner > 1 and group.inner > 1:
        return (node.outer, node.inner, node.launches) == (group.outer, group.inner, group.launches)
    return node.outer == group.outer


def _ordered(groups: list[_Group]) -> list[Node]:
    """Nodes of the groups in topological order, in the order of creation where possible."""
    done, order = 0, []
    pending = list(range(len(groups)))
    while pending:
        ready = next(index for index in pending if groups[index].ancestors & ~done == 0)
        pending.remove(ready)
        done |= 1 << ready
        order.append(groups[ready].node)
    return order
