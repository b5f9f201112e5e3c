"""Stream tree: dependencies of a graph as pipelines, split-joins, and general nodes.

The tree is generic in the items of its leaves, such as operators or units. One leaf comes after another in the tree if
and only if it depends on it in the graph. Constants, which may run at any time, are placed by `stream_tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Leaf(Generic[T]):
    """Single item, such as an operator or a unit."""

    item: T


@dataclass(frozen=True, slots=True)
class Pipeline(Generic[T]):
    """Streams in sequence; an empty pipeline passes its value unchanged."""

    children: tuple[Node[T], ...] = ()


@dataclass(frozen=True, slots=True)
class SplitJoin(Generic[T]):
    """Branches that depend on the same items and meet again; a residual has an empty pipeline as a branch."""

    branches: tuple[Node[T], ...]


@dataclass(frozen=True, slots=True)
class Dag(Generic[T]):
    """General node: a region with one entry and one exit that is not series-parallel.

    Attributes:
        children: streams in topological order.
        edges: (before, after), indices of children, sorted. A child without an incoming edge reads the entry alone.
    """

    children: tuple[Node[T], ...]
    edges: tuple[tuple[int, int], ...]

    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Indices of the children, grouped by the length of the longest path to them."""
        depth = [0] * len(self.children)
        for before, after in sorted(self.edges):  # children are in topological order, and so are edges by their source
            depth[after] = max(depth[after], depth[before] + 1)
        levels: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
        for index, level in enumerate(depth):
            levels[level].append(index)
        return tuple(map(tuple, levels))


Node = Leaf[T] | Pipeline[T] | SplitJoin[T] | Dag[T]


def children_of(node: Node[T]) -> tuple[Node[T], ...]:
    """Streams that a stream is composed of; none for a leaf."""
    if isinstance(node, Leaf):
        return ()
    return node.branches if isinstance(node, SplitJoin) else node.children


def nodes(node: Node[T]) -> Iterator[Node[T]]:
    """Iterate over a stream and all its parts, parents first, in topological order."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children_of(node)))


def leaves(node: Node[T]) -> Iterator[T]:
    """Iterate over the items of the leaves, in topological order."""
    return (inner.item for inner in nodes(node) if isinstance(inner, Leaf))


def format_tree(node: Node[T], label: Callable[[T], str] = str) -> str:
    """Format a tree as text, one line a node, indented by depth; `-` is a branch that passes its value unchanged.

    The children of a `dag` are numbered, and each lists its predecessors.
    """
    lines: list[str] = []
    pending: list[tuple[Node[T], int, str]] = [(node, 0, "")]
    while pending:
        node, depth, note = pending.pop()
        lines.append("  " * depth + note + _head(node, label))
        below = children_of(node)
        notes = _numbers(node) if isinstance(node, Dag) else [""] * len(below)
        pending.extend((child, depth + 1, text) for child, text in zip(reversed(below), reversed(notes), strict=True))
    return "\n".join(lines)


def _head(node: Node[T], label: Callable[[T], str]) -> str:
    if isinstance(node, Leaf):
        return label(node.item)
    if isinstance(node, Pipeline):
        return "pipeline" if node.children else "-"
    return "split-join" if isinstance(node, SplitJoin) else "dag"


def _numbers(node: Dag[T]) -> Sequence[str]:
    before: list[list[str]] = [[] for _ in node.children]
    for source, target in node.edges:
        before[target].append(str(source))
    notes = (f" after {','.join(found)}" if found else "" for found in before)
    return [f"{index}{note}: " for index, note in enumerate(notes)]
