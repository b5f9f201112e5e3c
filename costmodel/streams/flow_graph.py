"""Flow graph with a source and a sink whose edges are streams, and its series and parallel reductions.

Two edges in series become one, and two parallel edges become one, until none is left; the result does not depend on the
order (Valdes, Tarjan and Lawler, "The recognition of series parallel digraphs", SIAM J. Computing 11, 1982).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from costmodel.streams.types import Node, Pipeline, SplitJoin

T = TypeVar("T")
_LAST = 1 << 62
"""Place of the empty branch among the branches of a split-join."""


@dataclass(slots=True)
class Series(Generic[T]):
    """Growing pipeline; each part has the place of its first item, which orders branches."""

    parts: deque[tuple[int, Node[T]]] = field(default_factory=deque)

    def then(self, other: Series[T]) -> Series[T]:
        """Append another series; the shorter is merged into the longer, so that n steps cost n log n."""
        if len(self.parts) >= len(other.parts):
            self.parts.extend(other.parts)
            return self
        other.parts.extendleft(reversed(self.parts))
        return other

    def is_empty(self) -> bool:
        """Whether values pass unchanged."""
        return not self.parts

    def freeze(self) -> tuple[int, Node[T]]:
        """Place of the first item, and the finished stream."""
        if len(self.parts) == 1:
            return self.parts[0]
        place = self.parts[0][0] if self.parts else _LAST
        return place, Pipeline(tuple(node for _, node in self.parts))


@dataclass(slots=True)
class Parallel(Generic[T]):
    """Growing split-join."""

    branches: list[tuple[int, Node[T]]]

    def is_empty(self) -> bool:
        """Whether values pass unchanged: never, for empty branches are merged into a `Series`."""
        return False

    def freeze(self) -> tuple[int, Node[T]]:
        """Place of the first item, and the finished stream with branches in the order of their first items."""
        ordered = sorted(self.branches, key=lambda branch: branch[0])
        return ordered[0][0], SplitJoin(tuple(node for _, node in ordered))


Stream = Series[T] | Parallel[T]


def as_series(stream: Stream[T]) -> Series[T]:
    """Convert a stream to a pipeline; a split-join becomes its only part."""
    return stream if isinstance(stream, Series) else Series(deque([stream.freeze()]))


def _branches(stream: Stream[T]) -> list[tuple[int, Node[T]]]:
    return stream.branches if isinstance(stream, Parallel) else [stream.freeze()]


def beside(one: Stream[T], other: Stream[T]) -> Stream[T]:
    """Combine two streams in parallel; several empty branches become one."""
    longer, shorter = sorted((_branches(one), _branches(other)), key=len, reverse=True)
    longer.extend(shorter)
    empty = [branch for branch in longer if branch[0] == _LAST]
    if len(empty) < 2:
        return Parallel(longer)
    kept = [branch for branch in longer if branch[0] != _LAST]
    return Parallel([*kept, empty[0]]) if kept else Series()


class FlowGraph(Generic[T]):
    """Junctions connected by streams.

    Attributes:
        out: for each junction, successor -> stream.
        into: predecessors of each junction.
        source: first junction.
        sink: last junction.
    """

    def __init__(self) -> None:
        self.out: list[dict[int, Stream[T]]] = [{}, {}]
        self.into: list[dict[int, None]] = [{}, {}]
        self.source = 0
        self.sink = 1

    def junction(self) -> int:
        """Add a junction, and return its index."""
        self.out.append({})
        self.into.append({})
        return len(self.out) - 1

    def connect(self, tail: int, head: int, stream: Stream[T]) -> None:
        """Add a stream between two junctions, in parallel to an existing one."""
        other = self.out[tail].get(head)
        self.out[tail][head] = stream if other is None else beside(other, stream)
        self.into[head][tail] = None

    def disconnect(self, tail: int, head: int) -> Stream[T]:
        """Remove a stream, and return it."""
        del self.into[head][tail]
        return self.out[tail].pop(head)

    def isolate(self, junction: int) -> None:
        """Remove all streams of a junction."""
        for head in tuple(self.out[junction]):
            self.disconnect(junction, head)
        for tail in tuple(self.into[junction]):
            self.disconnect(tail, junction)

    def reduce(self, junctions: Iterable[int]) -> None:
        """Merge the two streams of each junction with one predecessor and one successor, as long as there are any."""
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
        """Junctions reachable from the source, in topological order."""
        waiting = [len(tails) for tails in self.into]
        found = [self.source]
        for junction in found:
            for head in self.out[junction]:
                waiting[head] -= 1
                if waiting[head] == 0:
                    found.append(head)
        return found
