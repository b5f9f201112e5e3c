"""Topological order of numbered things, the same every time."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from graphlib import TopologicalSorter


def in_order(before: Sequence[Collection[int]]) -> Iterator[int]:
    """Numbers in an order in which none comes before one it waits for, else the smaller first (Kahn, 1962).

    Args:
        before: of each number those that it waits for.

    Raises:
        graphlib.CycleError: some wait for each other.
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
