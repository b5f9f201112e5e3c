"""Stream program: filters connected by channels, in StreamIt's terms.

After Thies, Karczmarek and Amarasinghe, "StreamIt: a language for streaming applications" (CC 2002), and Dighe, "Fast
multistage compilation of machine learning computation graphs" (MIT, 2024), chapters 2 and 4. An item on a channel is a
tensor of any size.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.errors import GraphError
from costmodel.ir import Op, Ref


@dataclass(frozen=True, slots=True)
class Filter:
    """Computation that in each run peeks at `peek` items, pops `pop` of them and pushes `push`.

    Attributes:
        name: name with parameters: `conv2d(3, 64, 3, 3, 1, 1, 0, 0)`.
        pop: number of items popped.
        peek: number of items peeked at, the popped ones included.
        push: number of items pushed.
        op: operator of a graph that it runs, if any.
        reads: values of the graph that it pops, in order.
        results: indices of the operator's results that it pushes, in order.
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
    """Filter that pops one item for each weight and pushes it that many times; 0 drops it.

    With the single weight 1 it is StreamIt's identity filter.
    """

    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.weights or min(self.weights) < 0:
            raise GraphError(f"a separator's weights are counts, at least one: {self.weights}")

    @property
    def pop(self) -> int:
        """Number of items popped."""
        return len(self.weights)

    @property
    def peek(self) -> int:
        """Number of items peeked at, which are those popped."""
        return len(self.weights)

    @property
    def push(self) -> int:
        """Number of items pushed."""
        return sum(self.weights)


IDENTITY = Separator((1,))


@dataclass(frozen=True, slots=True)
class FilterPipeline:
    """Streams in sequence, each reading the output of the one before it."""

    children: tuple[Stream, ...]

    def __post_init__(self) -> None:
        if not self.children:
            raise GraphError("a pipeline needs at least one stream; identity() passes every item")


@dataclass(frozen=True, slots=True)
class FilterSplitJoin:
    """Streams side by side, between a splitter and a round-robin joiner.

    Attributes:
        branches: streams of the branches.
        joiner: number of items popped from each branch in turn.
        splitter: number of items pushed to each branch in turn; empty for a duplicate splitter, which copies every
            item to all branches.
    """

    branches: tuple[Stream, ...]
    joiner: tuple[int, ...]
    splitter: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.branches)
        if not count or len(self.joiner) != count or len(self.splitter) not in (0, count):
            raise GraphError(
                f"a split-join of {count} branches needs as many weights, not {self.splitter} and {self.joiner}"
            )


Stream = Filter | Separator | FilterPipeline | FilterSplitJoin


def filters(stream: Stream) -> tuple[Filter, ...]:
    """Filters of a stream other than separators, in the order of the source text."""
    found: list[Filter] = []
    pending = [stream]
    while pending:
        stream = pending.pop()
        if isinstance(stream, Filter):
            found.append(stream)
        elif isinstance(stream, FilterPipeline | FilterSplitJoin):
            pending.extend(reversed(stream.children if isinstance(stream, FilterPipeline) else stream.branches))
    return tuple(found)
