"""Module tree -> rows to show: down to a depth, the rows of most time, sorted among siblings; the rest in sums."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.report.module_tree import ModuleNode

ROWS = 40
"""Rows below the model that are shown by default."""
SORTS = ("time", "gain", "name")
"""Orders of siblings, beside that of execution."""

_KEYS: Mapping[str, Callable[[ModuleNode], tuple[float, str]]] = {
    "time": lambda node: (-max(node.eager_us, node.compiled_us), ""),
    "gain": lambda node: (-node.saved_us, ""),
    "name": lambda node: (0.0, node.label),
}


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A row of the tree.

    Attributes:
        node: the module, or the sum of siblings that are left out.
        last: for each level down to the row, whether it is the last of its siblings there; empty for the model.
        others: number of siblings that the row sums up; 0 for a module.
    """

    node: ModuleNode
    last: tuple[bool, ...]
    others: int = 0


def tree_rows(
    root: ModuleNode, depth: int | None = None, sort: str | None = None, top: int | None = ROWS
) -> list[TreeRow]:
    """Rows of a tree, the model first. The rows of shown siblings add up to their parent.

    Modules without time of their own are left out: their operators are part of a layer beside them.

    Args:
        root: the model.
        depth: levels below the model; None for as many as there are.
        sort: order of siblings, one of SORTS; None for execution order.
        top: number of rows below the model, those of most time or, sorted by gain, of the largest change; None for all.
    """
    tree = _Tree(root, depth, sort, top)
    rows = [TreeRow(root, ())]
    pending = tree.rows(root, ())[::-1]
    while pending:
        row = pending.pop()
        rows.append(row)
        if not row.others:
            pending += tree.rows(row.node, row.last)[::-1]
    return rows


class _Tree:
    """Nodes to show.

    The module of most time is opened first, with all of its children, then the next one, as long as there are rows.
    Where children alone are too many, those of most time are shown, if at least half of the rows is left for them.
    """

    def __init__(self, root: ModuleNode, depth: int | None, sort: str | None, top: int | None) -> None:
        self._sort = sort
        self._running: dict[int, list[ModuleNode]] = {}
        self._shown: set[int] = set()
        room = math.inf if top is None else top
        half, counter = room / 2, itertools.count()
        pending = [(0.0, next(counter), 0, root)]
        while pending:
            _, _, level, node = heapq.heappop(pending)
            children = self._children(node) if level != depth else []
            if len(children) > room:
                most = int(room) if room >= half else 0
                children = sorted(children, key=lambda child: -_weight(child, sort))[:most]
            room -= len(children)
            self._shown.update(map(id, children))
            for child in children:
                heapq.heappush(pending, (-_weight(child, sort), next(counter), level + 1, child))

    def _children(self, node: ModuleNode) -> list[ModuleNode]:
        """Children with time of their own, each as one with an only child."""
        if id(node) not in self._running:
            self._running[id(node)] = [_with_only_child(child) for child in node.children if _runs(child)]
        return self._running[id(node)]

    def rows(self, node: ModuleNode, last: tuple[bool, ...]) -> list[TreeRow]:
        """Rows of a node's children; none if none of them is shown."""
        children = self._children(node)
        kept = [child for child in children if id(child) in self._shown]
        if not kept:
            return []
        rest = [child for child in children if id(child) not in self._shown]
        nodes = [(child, 0) for child in (sorted(kept, key=_KEYS[self._sort]) if self._sort else kept)]
        if rest:
            nodes.append((_sum(rest), sum(child.count for child in rest)))
        return [TreeRow(one, (*last, place == len(nodes) - 1), others) for place, (one, others) in enumerate(nodes)]


def _with_only_child(node: ModuleNode) -> ModuleNode:
    """A module and its only running child as one: `downsample.0`; the module itself if it has several."""
    while len(running := [child for child in node.children if _runs(child)]) == 1 and running[0].count == node.count:
        child = running[0]
        is_layer = not child.module_type and child.label == child.kind
        label = node.label if is_layer else f"{node.label}.{child.label}"
        kind = node.module_type if is_layer else child.module_type
        node = replace(child, label=label, module_type=kind, parameters=node.parameters)
    return node


def _weight(node: ModuleNode, sort: str | None) -> float:
    return abs(node.saved_us) if sort == "gain" else max(node.eager_us, node.compiled_us)


def _runs(node: ModuleNode) -> bool:
    return node.eager_us > 0 or node.compiled_us > 0


def _sum(nodes: Sequence[ModuleNode]) -> ModuleNode:
    """One node with the times of several."""
    eager, compiled = math.fsum(node.eager_us for node in nodes), math.fsum(node.compiled_us for node in nodes)
    return replace(
        nodes[0],
        name="",
        label="",
        module_type="",
        kind="",
        ops=(),
        shape=(),
        parameters=sum(node.parameters for node in nodes),
        flops=sum(node.flops for node in nodes),
        eager_us=eager,
        compiled_us=compiled,
        speedup=eager / compiled if eager and compiled else None,
        speedup_low=None,
        speedup_high=None,
        bound="",
        reason="",
        count=1,
        children=(),
    )
