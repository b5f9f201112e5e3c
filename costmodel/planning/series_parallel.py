"""An acyclic graph of units -> the series-parallel tree that the oracle works on; knows neither torch nor costs.

A pipeline is a sequence of leaves and split-joins. A split-join has branches, perhaps an empty one (a residual), and
the leaf that joins them. What is not series-parallel stays whole, with all its edges, as a tangle.

`costmodel.streams` tells the order of any items; here every join is a unit and every edge is kept, because the oracle
pays for edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

SOURCE = -1
"""What the first units read; inside a tangle, the unit before it."""
Edges = Mapping[int, Sequence[int]]
"""Unit -> those that read it."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One unit, by its number."""

    unit: int


@dataclass(frozen=True, slots=True)
class SplitJoin:
    """Branches that start at the unit before; `join` ends them all.

    None stands for the join of the split-join around this one, which is the last element of its branch.
    """

    branches: tuple[Pipeline, ...]
    join: Leaf | None


@dataclass(frozen=True, slots=True)
class Tangle:
    """Units between two that every path passes, in an order of their own; `join` as in a split-join.

    `edges` are those into `units`, and those into the join, which they call by its number even where `join` is None.
    """

    units: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    join: Leaf | None


Element = Leaf | SplitJoin | Tangle


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Elements one after the other; none at all in the empty branch of a residual."""

    elements: tuple[Element, ...]


def stream_tree(count: int, edges: Iterable[tuple[int, int]]) -> Pipeline:
    """The tree of units 0 .. count - 1.

    Units without a producer read the graph's input. If several have no consumer, they lead to a last leaf `count`: the
    graph's output.

    Args:
        count: how many units there are.
        edges: (producer, consumer), the producer's number the smaller one.
    """
    known = {(start, end) for start, end in edges if start != end}
    consuming, producing = {end for _, end in known}, {start for start, _ in known}
    ends = [unit for unit in range(count) if unit not in producing]
    units = list(range(count))
    known |= {(SOURCE, unit) for unit in units if unit not in consuming}
    if len(ends) > 1:
        known |= {(unit, count) for unit in ends}
        units.append(count)
    after: dict[int, list[int]] = {}
    for start, end in sorted(known):
        after.setdefault(start, []).append(end)
    return _pipeline(units, SOURCE, None, after)


def units_of(pipeline: Pipeline) -> Iterator[int]:
    """The units of a tree, each once, producers before consumers."""
    for element in pipeline.elements:
        if isinstance(element, Leaf):
            yield element.unit
            continue
        if isinstance(element, SplitJoin):
            for branch in element.branches:
                yield from units_of(branch)
        else:
            yield from element.units
        if element.join is not None:
            yield element.join.unit


def _pipeline(units: Sequence[int], source: int, end: int | None, after: Edges) -> Pipeline:
    """Units between `source` and `end` as a pipeline, split at those that every path passes.

    A unit is passed by every path if no edge leads from one before it to one behind it. An edge from `source` to `end`
    is an empty branch beside this pipeline, and no concern of it.
    """
    inside = set(units)
    far = max((unit for unit in after.get(source, ()) if unit in inside), default=source)
    elements: list[Element] = []
    between: list[int] = []
    start = source
    for unit in units:
        if far > unit:
            between.append(unit)
        else:
            elements.append(_joined(between, start, unit, after, Leaf(unit)) if between else Leaf(unit))
            between, start = [], unit
        far = max([far, *after.get(unit, ())])
    if between and end is not None:
        elements.append(_joined(between, start, end, after, None, own=start != source))
    return Pipeline(tuple(elements))


def _joined(
    units: Sequence[int], start: int, end: int, after: Edges, join: Leaf | None, own: bool = True
) -> SplitJoin | Tangle:
    """What lies between two units that every path passes; `own` if an edge between these two belongs to it."""
    parts = components(units, after)
    empty = own and end in after.get(start, ())
    if len(parts) + empty > 1:
        branches = [Pipeline(())] if empty else []
        branches += [_pipeline(part, start, end, after) for part in parts]
        return SplitJoin(tuple(branches), join)
    inside = set(units)
    edges = [(SOURCE, target) for target in after.get(start, ()) if target in inside]
    edges += [(unit, target) for unit in units for target in after.get(unit, ())]
    return Tangle(tuple(units), tuple(edges), join)


def components(units: Sequence[int], after: Edges) -> list[list[int]]:
    """Units that hang together, each part in order, the parts by their first units."""
    leader = {unit: unit for unit in units}

    def find(unit: int) -> int:
        while leader[unit] != unit:
            leader[unit] = leader[leader[unit]]
            unit = leader[unit]
        return unit

    for unit in units:
        for target in after.get(unit, ()):
            if target in leader:
                leader[find(target)] = find(unit)
    parts: dict[int, list[int]] = {}
    for unit in units:
        parts.setdefault(find(unit), []).append(unit)
    return list(parts.values())
