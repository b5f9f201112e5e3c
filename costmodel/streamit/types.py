"""The stream program: filters joined by channels, in StreamIt's terms.

After Thies, Karczmarek and Amarasinghe, "StreamIt: a language for streaming applications" (CC 2002), and Dighe, "Fast
multistage compilation of machine learning computation graphs" (MIT, 2024), chapters 2 and 4. An item on a channel is a
tensor, whatever its size.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.errors import GraphError
from costmodel.ir import Op, Ref


@dataclass(frozen=True, slots=True)
class Filter:
    """A computation: each time it runs it looks at `peek` items, takes `pop` of them and makes `push`.

    Attributes:
        name: what it computes, with its parameters: `conv2d(3, 64, 3, 3, 1, 1, 0, 0)`.
        pop: items taken.
        peek: items looked at, those taken among them.
        push: items made.
        op: the operator that it runs, if it is one of a graph's.
        reads: the graph's values that it takes, in the order in which they come.
        results: indices of the operator's results that it makes, in order.
    """

    name: str
    pop: int
    peek: int
    push: int
    op: Op | None = None
    reads: tuple[Ref, ...] = ()
    results: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.pop <= self.peek or self.push < 0:
            raise GraphError(f"{self.name}: cannot pop {self.pop}, peek {self.peek} and push {self.push} items")


@dataclass(frozen=True, slots=True)
class Separator:
    """Takes an item for each weight and passes it on that many times: 0 for a value that nothing reads.

    Of a single 1 it is StreamIt's identity filter.
    """

    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.weights or min(self.weights) < 0:
            raise GraphError(f"a separator's weights are counts, at least one: {self.weights}")

    @property
    def pop(self) -> int:
        """Items taken."""
        return len(self.weights)

    @property
    def peek(self) -> int:
        """Items looked at: those taken."""
        return len(self.weights)

    @property
    def push(self) -> int:
        """Items made."""
        return sum(self.weights)


IDENTITY = Separator((1,))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Streams one after another, each reading what the one before it writes."""

    children: tuple[Stream, ...]

    def __post_init__(self) -> None:
        if not self.children:
            raise GraphError("a pipeline of no streams would pass nothing on; identity() passes every item")


@dataclass(frozen=True, slots=True)
class SplitJoin:
    """Streams side by side, between a splitter and a round-robin joiner.

    Attributes:
        branches: the streams.
        joiner: items taken from each branch in turn.
        splitter: items given to each branch in turn; empty for a duplicate splitter, which gives every item to all.
    """

    branches: tuple[Stream, ...]
    joiner: tuple[int, ...]
    splitter: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.branches)
        if not count or len(self.joiner) != count or len(self.splitter) not in (0, count):
            raise GraphError(f"a split-join of {count} branches has as many weights: {self.splitter}, {self.joiner}")


Stream = Filter | Separator | Pipeline | SplitJoin


def filters(stream: Stream) -> tuple[Filter, ...]:
    """The filters of a stream that compute, in the order of the text."""
    found: list[Filter] = []
    pending = [stream]
    while pending:
        stream = pending.pop()
        if isinstance(stream, Filter):
            found.append(stream)
        elif isinstance(stream, Pipeline | SplitJoin):
            pending.extend(reversed(stream.children if isinstance(stream, Pipeline) else stream.branches))
    return tuple(found)
