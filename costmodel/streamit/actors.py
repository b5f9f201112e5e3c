"""Stream program -> actors connected by channels, for the balance equations and the interpreter."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.streamit.types import Filter, FilterPipeline, FilterSplitJoin, Separator, Stream

INPUT, OUTPUT = 0, 1
"""Channels of a program's input and output items."""


@dataclass(frozen=True, slots=True)
class Splitter:
    """Actor that distributes items: to each channel its weight in turn or, without weights, every item to all."""

    weights: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Joiner:
    """Actor that collects items: from each channel its weight in turn."""

    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Port:
    """End of a channel at an actor: items that pass in each run, and items that a reader peeks at."""

    channel: int
    items: int
    peek: int = 0


@dataclass(frozen=True, slots=True)
class Actor:
    """Filter, splitter or joiner with its channels."""

    work: Filter | Separator | Splitter | Joiner
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class ActorGraph:
    """Actors in topological order, and the number of channels."""

    actors: tuple[Actor, ...]
    channels: int


def flatten(program: Stream) -> ActorGraph:
    """Flatten a program into actors; it reads channel INPUT and writes channel OUTPUT."""
    flattening = _Flattening()
    flattening.add(program, INPUT, OUTPUT)
    return ActorGraph(tuple(flattening.actors), flattening.channels)


class _Flattening:
    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.channels = 2

    def add(self, stream: Stream, source: int, target: int) -> None:
        if isinstance(stream, Filter | Separator):
            taken, made = Port(source, stream.pop, stream.peek), Port(target, stream.push)
            self.actors.append(Actor(stream, (taken,), (made,)))
        elif isinstance(stream, FilterPipeline):
            ends = [source, *(self._channel() for _ in stream.children[1:]), target]
            for child, before, after in zip(stream.children, ends, ends[1:], strict=False):
                self.add(child, before, after)
        else:
            self._add_split_join(stream, source, target)

    def _add_split_join(self, stream: FilterSplitJoin, source: int, target: int) -> None:
        heads = [self._channel() for _ in stream.branches]
        tails = [self._channel() for _ in stream.branches]
        weights = stream.splitter or (1,) * len(heads)
        taken = sum(stream.splitter) if stream.splitter else 1
        given = tuple(Port(head, weight) for head, weight in zip(heads, weights, strict=True))
        self.actors.append(Actor(Splitter(stream.splitter), (Port(source, taken, taken),), given))
        for branch, head, tail in zip(stream.branches, heads, tails, strict=True):
            self.add(branch, head, tail)
        joined = tuple(Port(tail, weight, weight) for tail, weight in zip(tails, stream.joiner, strict=True))
        self.actors.append(Actor(Joiner(stream.joiner), joined, (Port(target, sum(stream.joiner)),)))

    def _channel(self) -> int:
        self.channels += 1
        return self.channels - 1
