"""A two-terminal flow_graph whose edges carry streams, and the reductions that make one stream of series-parallel parts.

Two edges in series become one, and so do two in parallel, until neither is left; the order makes no difference to the
result (Valdes, Tarjan and Lawler, "The recognition of series parallel digraphs", SIAM J. Computing 11, 1982).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from costmodel.streams.types import Node, Pipeline, SplitJoin

T = TypeVar("T")
_LAST = 1 << 62
"""Where the empty branch stands among the branches of a split-join."""


@dataclass(slots=True)
class Series(Generic[T]):
    """A pipeline that still grows, at both ends; each part with the place of its first item, by which branches sort."""

    parts: deque[tuple[int, Node[T]]] = field(default_factory=deque)

    def then(self, other: Series[T]) -> Series[T]:
        """This one and another after it; the longer takes the shorter in, so that n steps cost n log n."""
        if len(self.parts) >= len(other.parts):
            self.parts.extend(other.parts)
            return self
        other.parts.extendleft(reversed(self.parts))
        return other

    def is_empty(self) -> bool:
        """Whether a value passes as it is."""
        return not self.parts

    def freeze(self) -> tuple[int, Node[T]]:
        """The stream, and the place of its first item."""
        if len(self.parts) == 1:
            return self.parts[0]
        place = self.parts[0][0] if self.parts else _LAST
        return place, Pipeline(tuple(node for _, node in self.parts))


@dataclass(slots=True)
class Parallel(Generic[T]):
    """A split-join that still grows."""

    branches: list[tuple[int, Node[T]]]

    def is_empty(self) -> bool:
        """Never: branches that are all empty are one."""
        return False

    def freeze(self) -> tuple[int, Node[T]]:
        """The stream, and the place of its first item; branches stand in the order of their first items."""
        ordered = sorted(self.branches, key=lambda branch: branch[0])
        return ordered[0][0], SplitJoin(tuple(node for _, node in ordered))


Stream = Series[T] | Parallel[T]


def as_series(stream: Stream[T]) -> Series[T]:
    """A stream as a pipeline, of one part if it is a split-join."""
    return stream if isinstance(stream, Series) else Series(deque([stream.freeze()]))


def _branches(stream: Stream[T]) -> list[tuple[int, Node[T]]]:
    return stream.branches if isinstance(stream, Parallel) else [stream.freeze()]


def beside(one: Stream[T], other: Stream[T]) -> Stream[T]:
    """Two streams in parallel; a value passes by itself once, however many empty branches there are."""
    longer, shorter = sorted((_branches(one), _branches(other)), key=len, reverse=True)
    longer.extend(shorter)
    empty = [branch for branch in longer if branch[0] == _LAST]
    if len(empty) < 2:
        return Parallel(longer)
    kept = [branch for branch in longer if branch[0] != _LAST]
    return Parallel([*kept, empty[0]]) if kept else Series()


class FlowGraph(Generic[T]):
    """Junctions joined by streams.

    Attributes:
        out: for each junction those that its streams lead to, and the streams.
        into: for each junction those that streams lead from.
        source: the junction before everything.
        sink: the junction after everything.
    """

    def __init__(self) -> None:
        self.out: list[dict[int, Stream[T]]] = [{}, {}]
        self.into: list[dict[int, None]] = [{}, {}]
        self.source = 0
        self.sink = 1

    def junction(self) -> int:
        """A new junction."""
        self.out.append({})
        self.into.append({})
        return len(self.out) - 1

    def connect(self, tail: int, head: int, stream: Stream[T]) -> None:
        """Adds a stream, in parallel to what joins these two junctions already."""
        other = self.out[tail].get(head)
        self.out[tail][head] = stream if other is None else beside(other, stream)
        self.into[head][tail] = None

    def disconnect(self, tail: int, head: int) -> Stream[T]:
        """Takes a stream away."""
        del self.into[head][tail]
        return self.out[tail].pop(head)

    def isolate(self, junction: int) -> None:
        """Takes all streams of a junction away."""
        for head in tuple(self.out[junction]):
            self.disconnect(junction, head)
        for tail in tuple(self.into[junction]):
            self.disconnect(tail, junction)

    def reduce(self, junctions: Iterable[int]) -> None:
        """Joins the streams before and after a junction that has one of each, these first and what follows from it."""
        pending = list(junctions)
        while pending:
            junction = pending.pop()
            if junction in (self.source, self.sink) or len(self.out[junction]) != 1 or len(self.into[junction]) != 1:
                continue
            (tail,), (head,) = self.into[junction], self.out[junction]
            before, after = self.disconnect(tail, junction), self.disconnect(junction, head)
            self.connect(tail, head, as_series(before).then(as_series(after)))
            pending += (tail, head)

    def order(self) -> list[int]:
        """Junctions that streams lead from the source to, each before those that come after it."""
        waiting = [len(tails) for tails in self.into]
        found = [self.source]
        for junction in found:
            for head in self.out[junction]:
                waiting[head] -= 1
                if waiting[head] == 0:
                    found.append(head)
        return found
