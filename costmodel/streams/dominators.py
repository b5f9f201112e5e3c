"""Dominator trees of acyclic graphs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

Links = Sequence[Mapping[int, object]]
"""Junctions that each junction is linked to."""


class Dominators:
    """Dominator tree of junctions; post-dominators if the links are reversed.

    The parent of a junction is the nearest common ancestor of its predecessors. In topological order all of these have
    their parents already, so one pass is enough. Binary lifting finds common ancestors.

    Attributes:
        parent: junction -> its immediate dominator; the root has none.
    """

    def __init__(self, order: Sequence[int], to_root: Links, from_root: Links) -> None:
        """Build the tree.

        Args:
            order: junctions in topological order; the first is the root.
            to_root: predecessors of each junction.
            from_root: successors of each junction.
        """
        self.parent: dict[int, int] = {}
        self._to_root = to_root
        self._from_root = from_root
        self._depth = {order[0]: 0}
        self._jumps: dict[int, list[int]] = {order[0]: []}
        for junction in order[1:]:
            self._add(junction)
        self._first, self._end = self._numbers(order)
        surplus = {self._first[junction]: len(from_root[junction]) - len(to_root[junction]) for junction in order}
        self._surplus = [0, *accumulate(surplus[number] for number in range(len(order)))]
        self._heads: dict[int, list[int]] = {}

    def dominates(self, one: int, other: int) -> bool:
        """Whether every path from the root to `other` leads through `one`, or the two are equal."""
        return self._first[one] <= self._first[other] < self._end[one]

    def encloses(self, junction: int, other: int) -> bool:
        """Whether links out of the subtree below a junction lead to one other junction only.

        Both sides of the comparison count links that leave the subtree away from the root: all of them, and those
        that end in `other`, which is not in the subtree.
        """
        inner = self._surplus[self._end[junction]] - self._surplus[self._first[junction] + 1]
        return inner + len(self._from_root[junction]) == self._links_between(junction, other)

    def _links_between(self, junction: int, other: int) -> int:
        if other not in self._heads:
            self._heads[other] = sorted(self._first[link] for link in self._to_root[other])
        heads = self._heads[other]
        return bisect_left(heads, self._end[junction]) - bisect_left(heads, self._first[junction])

    def _add(self, junction: int) -> None:
        links = iter(self._to_root[junction])
        parent = next(links)
        for link in links:
            parent = self._common(parent, link)
        self.parent[junction] = parent
        self._depth[junction] = self._depth[parent] + 1
        jumps = [parent]
        while len(self._jumps[jumps[-1]]) >= len(jumps):
            jumps.append(self._jumps[jumps[-1]][len(jumps) - 1])
        self._jumps[junction] = jumps

    def _common(self, one: int, other: int) -> int:
        """Nearest common ancestor."""
        if self._depth[one] < self._depth[other]:
            one, other = other, one
        while gap := self._depth[one] - self._depth[other]:
            one = self._jumps[one][gap.bit_length() - 1]
        while one != other:
            pairs = zip(self._jumps[one], self._jumps[other], strict=True)
            differing = [pair for pair in pairs if pair[0] != pair[1]]
            one, other = differing[-1] if differing else (self.parent[one], self.parent[other])
        return one

    def _numbers(self, order: Sequence[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Preorder number of each junction, and the number after the last of its subtree."""
        size = dict.fromkeys(order, 1)
        for junction in reversed(order[1:]):
            size[self.parent[junction]] += size[junction]
        first = {order[0]: 0}
        free = {order[0]: 1}
        for junction in order[1:]:
            parent = self.parent[junction]
            first[junction] = free[parent]
            free[parent] += size[junction]
            free[junction] = first[junction] + 1
        return first, {junction: first[junction] + size[junction] for junction in order}
