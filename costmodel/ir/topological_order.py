"""Deterministic topological order of numbered nodes."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from graphlib import TopologicalSorter


def in_order(before: Sequence[Collection[int]]) -> Iterator[int]:
    """Yield nodes after all their predecessors, the smallest first among those that are ready (Kahn, 1962).

    Args:
        before: predecessors of each node.

    Raises:
        graphlib.CycleError: the nodes form a cycle.
    """
    sorter = TopologicalSorter(dict(enumerate(before)))
    sorter.prepare()
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    while ready:
        number = heapq.heappop(ready)
        yield number
        sorter.done(number)
        for free in sorter.get_ready():
            heapq.heappush(ready, free)
