"""Layout of a stream tree: pipelines run downwards, branches lie side by side, general nodes level by level.

The tree determines the layout, so no general graph layout program is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from costmodel.streams import Dag, Leaf, Node, Pipeline, SplitJoin

T = TypeVar("T")
GAP = 18.0
"""Distance between neighbours, across and down."""
PASSING = 12.0
"""Width of a branch that passes its value unchanged."""
BEND = 10.0
"""Extra distance aside for each level that an edge skips."""


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """Box of an item; x is its middle and y its top."""

    item: T
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Wire:
    """Line downwards between two points; `bend` is its distance to the right on the way."""

    x1: float
    y1: float
    x2: float
    y2: float
    bend: float = 0.0


@dataclass(frozen=True, slots=True)
class Drawing(Generic[T]):
    """Drawing of a part of a tree, entered at the middle of its top and left at the middle of its bottom.

    Coordinates are relative to the middle of the top.
    """

    width: float
    height: float
    boxes: tuple[Placed[T], ...] = ()
    wires: tuple[Wire, ...] = ()

    def moved(self, x: float, y: float) -> Drawing[T]:
        """Shift the drawing."""
        boxes = (Placed(box.item, box.x + x, box.y + y, box.width, box.height) for box in self.boxes)
        wires = (Wire(wire.x1 + x, wire.y1 + y, wire.x2 + x, wire.y2 + y, wire.bend) for wire in self.wires)
        return Drawing(self.width, self.height, tuple(boxes), tuple(wires))


def arrange(node: Node[T], size: Callable[[T], tuple[float, float]]) -> Drawing[T]:
    """Lay out a tree.

    Args:
        node: tree to draw.
        size: gives the width and height of an item.
    """
    if isinstance(node, Leaf):
        width, height = size(node.item)
        return Drawing(width, height, (Placed(node.item, 0.0, 0.0, width, height),))
    if isinstance(node, Pipeline):
        return _stacked([arrange(child, size) for child in node.children])
    if isinstance(node, SplitJoin):
        return _between_points([arrange(branch, size) for branch in node.branches])
    return _levels(node, [arrange(child, size) for child in node.children])


def _stacked(parts: Sequence[Drawing[T]]) -> Drawing[T]:
    if not parts:
        return Drawing(PASSING, 0.0)
    wires: list[Wire] = []
    moved: list[Drawing[T]] = []
    y = 0.0
    for part in parts:
        if moved:
            wires.append(Wire(0.0, y - GAP, 0.0, y))
        moved.append(part.moved(0.0, y))
        y += part.height + GAP
    return _together(moved, wires, max(part.width for part in parts), y - GAP)


def _between_points(branches: Sequence[Drawing[T]]) -> Drawing[T]:
    """Branches side by side, with wires from a point above them and to a point below them."""
    row = list(_row(branches))
    width = sum(part.width for part in branches) + GAP * (len(branches) - 1)
    inner = max(part.height for part in branches)
    wires: list[Wire] = []
    for x, part in row:
        wires.append(Wire(0.0, 0.0, x, GAP))
        wires.append(Wire(x, GAP + part.height, x, GAP + inner))
        wires.append(Wire(x, GAP + inner, 0.0, inner + 2 * GAP))
    moved = [part.moved(x, GAP) for x, part in row]
    return _together(moved, wires, width, inner + 2 * GAP)


def _levels(node: Dag[T], parts: Sequence[Drawing[T]]) -> Drawing[T]:
    """Row of children for each level; an edge that skips levels goes round them."""
    tops: dict[int, tuple[float, float]] = {}
    bottoms: dict[int, tuple[float, float]] = {}
    level_of: dict[int, int] = {}
    moved: list[Drawing[T]] = []
    width, y = 0.0, GAP
    for number, level in enumerate(node.levels()):
        for index, (x, part) in zip(level, _row([parts[index] for index in level]), strict=True):
            moved.append(part.moved(x, y))
            tops[index], bottoms[index], level_of[index] = (x, y), (x, y + part.height), number
        width = max(width, sum(parts[index].width + GAP for index in level) - GAP)
        y += max(parts[index].height for index in level) + GAP
    wires: list[Wire] = []
    for source, target in node.edges:
        passed = level_of[target] - level_of[source] - 1
        wires.append(Wire(*bottoms[source], *tops[target], width / 2 + BEND * passed if passed else 0.0))
    sources, targets = {edge[0] for edge in node.edges}, {edge[1] for edge in node.edges}
    wires += [Wire(0.0, 0.0, *tops[index]) for index in tops if index not in targets]
    wires += [Wire(*bottoms[index], 0.0, y) for index in bottoms if index not in sources]
    aside = max((wire.bend for wire in wires), default=0.0)
    return _together(moved, wires, max(width, 2 * aside), y)


def _row(parts: Sequence[Drawing[T]]) -> Iterator[tuple[float, Drawing[T]]]:
    """Middles of parts side by side, centred at 0."""
    x = -(sum(part.width for part in parts) + GAP * (len(parts) - 1)) / 2
    for part in parts:
        yield x + part.width / 2, part
        x += part.width + GAP


def _together(parts: Sequence[Drawing[T]], wires: Sequence[Wire], width: float, height: float) -> Drawing[T]:
    boxes = tuple(box for part in parts for box in part.boxes)
    inner = tuple(wire for part in parts for wire in part.wires)
    return Drawing(width, height, boxes, (*inner, *wires))
