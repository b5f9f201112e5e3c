"""Items and their dependencies -> stream tree; items are operators or units."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from graphlib import CycleError
from typing import TypeVar

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op
from costmodel.ir.topological_order import in_order
from costmodel.prediction.layers import Unit
from costmodel.streams.flow_graph import FlowGraph, Series, as_series
from costmodel.streams.general_nodes import replace_regions
from costmodel.streams.types import Leaf, Node

T = TypeVar("T")
_INPUT = -1
"""Index that stands for the model's inputs among the units that a unit reads."""


def operator_tree(graph: Graph) -> Node[Op]:
    """Build the stream tree of a graph's operators."""
    place = {op.name: index for index, op in enumerate(graph.ops)}
    inputs = {value.name for value in graph.inputs}
    before = [{place[ref.name] for ref in op.refs() if ref.name in place} for op in graph.ops]
    fed = [index for index, op in enumerate(graph.ops) if any(ref.name in inputs for ref in op.refs())]
    return stream_tree(graph.ops, before, fed)


def unit_tree(graph: Graph, units: Sequence[Unit]) -> Node[Unit]:
    """Build the stream tree of a graph's units.

    Raises:
        GraphError: two units depend on each other.
    """
    before, fed = unit_dependencies(graph, units)
    return stream_tree(units, before, fed)


def unit_dependencies(graph: Graph, units: Sequence[Unit]) -> tuple[list[set[int]], list[int]]:
    """Indices of the units that each unit reads, through views; and indices of the units that read an input."""
    home = {op.name: index for index, unit in enumerate(units) for op in unit.ops}
    sources = {value.name: frozenset((_INPUT,)) for value in graph.inputs}
    before: list[set[int]] = [set() for _ in units]
    for op in graph.ops:
        found = frozenset[int]().union(*(sources.get(ref.name, frozenset()) for ref in op.refs()))
        if op.name in home:
            before[home[op.name]] |= found
            found = frozenset((home[op.name],))
        sources[op.name] = found
    fed = [index for index, found in enumerate(before) if _INPUT in found]
    return [found - {index, _INPUT} for index, found in enumerate(before)], fed


def stream_tree(items: Sequence[T], before: Sequence[Collection[int]], fed: Collection[int] | None = None) -> Node[T]:
    """Build the stream tree of items, in nearly linear time.

    A region that series and parallel composition cannot express becomes a `Dag`. Items that depend on no input (casts
    of weights, constant masks) come in a pipeline just before their only reader or, with several readers, at the start.

    Args:
        items: items in any order.
        before: for each item, indices of the items that it reads.
        fed: indices of the items that read the model's inputs; None for those that read no other item.

    Raises:
        GraphError: dependencies are cyclic.
    """
    order = _dependence_order(before)
    roots = {index for index in order if not before[index]}
    reading = roots if fed is None else set(fed)
    varying = _reached(order, before, reading)
    if not varying:  # no item reads an input: treat all alike
        reading, varying = roots, order
    first, attached = _place_constants(order, before, set(varying))
    rank = {index: place for place, index in enumerate(order)}
    flow_graph: FlowGraph[T] = FlowGraph()
    for index, (tail, head) in _junctions(flow_graph, varying, before, reading).items():
        stream = [(rank[index], Leaf(items[other])) for other in (*attached.get(index, ()), index)]
        flow_graph.connect(tail, head, Series(deque(stream)))
    flow_graph.reduce(flow_graph.order())
    replace_regions(flow_graph)
    whole = as_series(flow_graph.out[flow_graph.source][flow_graph.sink]) if varying else Series()
    return Series(deque([(rank[index], Leaf(items[index])) for index in first])).then(whole).freeze()[1]


def _dependence_order(before: Sequence[Collection[int]]) -> list[int]:
    """Topological order of the items, ties in the given order."""
    try:
        return list(in_order(before))
    except CycleError as error:
        raise GraphError(f"items depend on each other in a cycle: {', '.join(map(str, error.args[1]))}") from error


def _reached(order: Sequence[int], before: Sequence[Collection[int]], reading: Collection[int]) -> list[int]:
    """Items that depend on an input, in order."""
    found: dict[int, None] = {}
    for index in order:
        if index in reading or any(source in found for source in before[index]):
            found[index] = None
    return list(found)


def _place_constants(
    order: Sequence[int], before: Sequence[Collection[int]], varying: Collection[int]
) -> tuple[list[int], dict[int, list[int]]]:
    """Places of items that depend on no input: at the start, or before the only item that reads them."""
    readers: dict[int, set[int]] = {index: set() for index in order}
    for index in order:
        for source in before[index]:
            readers[source].add(index)
    goal: dict[int, int | None] = {}
    for index in reversed(order):
        if index not in varying:
            only = next(iter(readers[index])) if len(readers[index]) == 1 else None
            goal[index] = only if only is None or only in varying else goal[only]
    first: list[int] = []
    attached: dict[int, list[int]] = {}
    for index in order:
        if index in goal:
            target = goal[index]
            (first if target is None else attached.setdefault(target, [])).append(index)
    return first, attached


def _junctions(
    flow_graph: FlowGraph[T], order: Sequence[int], before: Sequence[Collection[int]], reading: Collection[int]
) -> dict[int, tuple[int, int]]:
    """Junctions before and after each item, connected by the dependencies.

    If several items read the same items and nothing else reads these, all of them share one junction.
    """
    present = set(order)
    sources = {index: {source for source in before[index] if source in present} for index in order}
    readers: dict[int, list[int]] = {index: [] for index in order}
    for index in order:
        for source in sources[index]:
            readers[source].append(index)
    groups: dict[tuple[int, ...], list[int]] = {}
    for index in order:
        groups.setdefault(tuple(readers[index]), []).append(index)
    head: dict[int, int] = {index: flow_graph.source for index in order if not sources[index]}
    tail: dict[int, int] = {index: flow_graph.sink for index in order if not readers[index]}
    for users, group in groups.items():
        if users and all(len(sources[user]) == len(group) and user not in reading for user in users):
            shared = flow_graph.junction()
            head |= dict.fromkeys(users, shared)
            tail |= dict.fromkeys(group, shared)
    ends = {index: (_end(flow_graph, head, index), _end(flow_graph, tail, index)) for index in order}
    for index in order:
        if index in reading and sources[index]:
            flow_graph.connect(flow_graph.source, ends[index][0], Series())
        for source in sources[index]:
            if ends[source][1] != ends[index][0]:
                flow_graph.connect(ends[source][1], ends[index][0], Series())
    return ends


def _end(flow_graph: FlowGraph[T], known: dict[int, int], index: int) -> int:
    return known[index] if index in known else flow_graph.junction()
