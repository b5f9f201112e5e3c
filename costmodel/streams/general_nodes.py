"""Regions of a network that neither series nor parallel reductions can enter: found by dominators, made general nodes.

A region is two junctions, entry and exit, with what lies between them, such that nothing else leads into it or out of
it. It takes in all that leaves its entry, or all that meets in its exit. Regions lie inside one another or apart; they
are replaced from the inside out, so that a larger one holds a smaller as a single stream.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from costmodel.streams.dominators import Dominators
from costmodel.streams.network import Network, Series
from costmodel.streams.types import Dag, Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Region:
    """An entry and an exit; `forward` if all that leaves the entry is inside, else all that meets in the exit is."""

    entry: int
    exit: int
    forward: bool


@dataclass(frozen=True, slots=True)
class _Child(Generic[T]):
    """A stream of a region, the place of its first item, and the junctions that it joins."""

    place: int
    node: Node[T]
    tail: int
    head: int


def replace_regions(network: Network[T]) -> None:
    """Replaces what series and parallel reductions have left by general streams, until one stream is left."""
    order = network.order()
    place = {junction: index for index, junction in enumerate(order)}
    for region in find_regions(network, order):
        if not network.out[region.entry] or not network.into[region.exit]:
            continue  # reduced away with a region inside it
        inside = sorted(_inside(network, region), key=place.__getitem__)
        streams = [_general_stream(network, part) for part in _parts(network, inside)]
        for junction in inside:
            network.isolate(junction)
        for stream in streams:
            network.connect(region.entry, region.exit, stream)
        network.reduce((region.entry, region.exit))


def find_regions(network: Network[T], order: Sequence[int]) -> list[Region]:
    """Regions of a reduced network, each after those inside it; `order` is that of its junctions."""
    place = {junction: index for index, junction in enumerate(order)}
    before = Dominators(order, network.into, network.out)
    after = Dominators(order[::-1], network.out, network.into)
    found: dict[tuple[int, int], Region] = {}
    for junction, entry in before.parent.items():
        around = after.dominates(junction, entry)
        if len(network.into[junction]) > 1 and (around or after.encloses(junction, entry)):
            found[entry, junction] = Region(entry, junction, forward=around)
    for junction, end in after.parent.items():
        around = before.dominates(junction, end)  # then it has been found above
        if len(network.out[junction]) > 1 and not around and before.encloses(junction, end):
            found[junction, end] = Region(junction, end, forward=True)
    return sorted(found.values(), key=lambda region: place[region.exit] - place[region.entry])


def _inside(network: Network[T], region: Region) -> set[int]:
    """The junctions between entry and exit."""
    links, start = (network.out, region.entry) if region.forward else (network.into, region.exit)
    bounds = {region.entry, region.exit}
    found: set[int] = set()
    pending = [start]
    while pending:
        fresh = links[pending.pop()].keys() - found - bounds
        found |= fresh
        pending += fresh
    return found


def _parts(network: Network[T], inside: Sequence[int]) -> Iterator[list[int]]:
    """Junctions that hang together without entry and exit, each part in the order given: branches of one split-join."""
    part_of: dict[int, int] = {}
    left = set(inside)
    for start in inside:
        pending = [start] if start in left else []
        left.discard(start)
        while pending:
            junction = pending.pop()
            part_of[junction] = start
            fresh = (network.out[junction].keys() | network.into[junction].keys()) & left
            left -= fresh
            pending += fresh
    parts: dict[int, list[int]] = {}
    for junction in inside:
        parts.setdefault(part_of[junction], []).append(junction)
    yield from parts.values()


def _general_stream(network: Network[T], part: Sequence[int]) -> Series[T]:
    """What touches some junctions as one stream; an empty stream among it is an edge between children and no child."""
    children = sorted(_touching(network, part), key=lambda child: child.place)
    arriving: defaultdict[int, set[int]] = defaultdict(set)
    for index, child in enumerate(children):
        arriving[child.head].add(index)
    for junction in part:
        for tail in network.into[junction]:
            if network.out[tail][junction].is_empty():
                arriving[junction] |= arriving[tail]
    edges = {(source, index) for index, child in enumerate(children) for source in arriving[child.tail]}
    node = Dag(tuple(child.node for child in children), tuple(sorted(edges)))
    return Series(deque([(children[0].place, node)]))


def _touching(network: Network[T], part: Sequence[int]) -> Iterator[_Child[T]]:
    """The streams into and out of some junctions that are not empty, each once."""
    members = set(part)
    for junction in part:
        pairs = [(tail, junction) for tail in network.into[junction]]
        pairs += [(junction, head) for head in network.out[junction] if head not in members]
        for tail, head in pairs:
            stream = network.out[tail][head]
            if not stream.is_empty():
                yield _Child(*stream.freeze(), tail, head)
