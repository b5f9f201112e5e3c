"""General nodes for regions that series and parallel reductions cannot reduce; dominators find the regions.

A region lies between two junctions, entry and exit, and has no other link into it or out of it. It holds all that
leaves its entry, or all that meets in its exit. Regions are nested or disjoint. They are replaced from the inside out,
so that a larger one holds a smaller one as a single stream.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from costmodel.streams.dominators import Dominators
from costmodel.streams.flow_graph import FlowGraph, Series
from costmodel.streams.types import Dag, Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SingleEntryRegion:
    """Entry and exit; `forward` if all that leaves the entry is inside, else all that meets in the exit is."""

    entry: int
    exit: int
    forward: bool


@dataclass(frozen=True, slots=True)
class _Child(Generic[T]):
    """Stream of a region, the place of its first item, and the junctions that it connects."""

    place: int
    node: Node[T]
    tail: int
    head: int


def replace_regions(flow_graph: FlowGraph[T]) -> None:
    """Replace the regions that reductions have left by general nodes, until one stream is left."""
    order = flow_graph.order()
    place = {junction: index for index, junction in enumerate(order)}
    for region in find_regions(flow_graph, order):
        if not flow_graph.out[region.entry] or not flow_graph.into[region.exit]:
            continue  # already reduced with a region inside it
        inside = sorted(_inside(flow_graph, region), key=place.__getitem__)
        streams = [_general_stream(flow_graph, part) for part in _parts(flow_graph, inside)]
        for junction in inside:
            flow_graph.isolate(junction)
        for stream in streams:
            flow_graph.connect(region.entry, region.exit, stream)
        flow_graph.reduce((region.entry, region.exit))


def find_regions(flow_graph: FlowGraph[T], order: Sequence[int]) -> list[SingleEntryRegion]:
    """Find the regions of a reduced flow graph, inner ones first; `order` is that of its junctions."""
    place = {junction: index for index, junction in enumerate(order)}
    before = Dominators(order, flow_graph.into, flow_graph.out)
    after = Dominators(order[::-1], flow_graph.out, flow_graph.into)
    found: dict[tuple[int, int], SingleEntryRegion] = {}
    for junction, entry in before.parent.items():
        around = after.dominates(junction, entry)
        if len(flow_graph.into[junction]) > 1 and (around or after.encloses(junction, entry)):
            found[entry, junction] = SingleEntryRegion(entry, junction, forward=around)
    for junction, end in after.parent.items():
        around = before.dominates(junction, end)  # then it has been found above
        if len(flow_graph.out[junction]) > 1 and not around and before.encloses(junction, end):
            found[junction, end] = SingleEntryRegion(junction, end, forward=True)
    return sorted(found.values(), key=lambda region: place[region.exit] - place[region.entry])


def _inside(flow_graph: FlowGraph[T], region: SingleEntryRegion) -> set[int]:
    """Junctions between entry and exit."""
    links, start = (flow_graph.out, region.entry) if region.forward else (flow_graph.into, region.exit)
    bounds = {region.entry, region.exit}
    found: set[int] = set()
    pending = [start]
    while pending:
        fresh = links[pending.pop()].keys() - found - bounds
        found |= fresh
        pending += fresh
    return found


def _parts(flow_graph: FlowGraph[T], inside: Sequence[int]) -> Iterator[list[int]]:
    """Connected components of a region without entry and exit, in the given order: branches of one split-join."""
    part_of: dict[int, int] = {}
    left = set(inside)
    for start in inside:
        pending = [start] if start in left else []
        left.discard(start)
        while pending:
            junction = pending.pop()
            part_of[junction] = start
            fresh = (flow_graph.out[junction].keys() | flow_graph.into[junction].keys()) & left
            left -= fresh
            pending += fresh
    parts: dict[int, list[int]] = {}
    for junction in inside:
        parts.setdefault(part_of[junction], []).append(junction)
    yield from parts.values()


def _general_stream(flow_graph: FlowGraph[T], part: Sequence[int]) -> Series[T]:
    """Combine the streams at some junctions into one; an empty stream becomes an edge between children."""
    children = sorted(_touching(flow_graph, part), key=lambda child: child.place)
    arriving: defaultdict[int, set[int]] = defaultdict(set)
    for index, child in enumerate(children):
        arriving[child.head].add(index)
    for junction in part:
        for tail in flow_graph.into[junction]:
            if flow_graph.out[tail][junction].is_empty():
                arriving[junction] |= arriving[tail]
    edges = {(source, index) for index, child in enumerate(children) for source in arriving[child.tail]}
    node = Dag(tuple(child.node for child in children), tuple(sorted(edges)))
    return Series(deque([(children[0].place, node)]))


def _touching(flow_graph: FlowGraph[T], part: Sequence[int]) -> Iterator[_Child[T]]:
    """Non-empty streams into and out of some junctions, each once."""
    members = set(part)
    for junction in part:
        pairs = [(tail, junction) for tail in flow_graph.into[junction]]
        pairs += [(junction, head) for head in flow_graph.out[junction] if head not in members]
        for tail, head in pairs:
            stream = flow_graph.out[tail][head]
            if not stream.is_empty():
                yield _Child(*stream.freeze(), tail, head)
