"""Steady-state schedule of a stream program: runs of each actor, and sizes of its channels.

Balance equations after Lee and Messerschmitt, "Synchronous data flow" (Proceedings of the IEEE, 1987): on every channel
one pass writes as many items as it reads. A filter that peeks at more than it pops needs items from earlier runs;
initial runs provide them (Karczmarek, Thies and Amarasinghe, "Phased scheduling of stream programs", 2003).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from costmodel.errors import GraphError
from costmodel.streamit.actors import INPUT, OUTPUT, ActorGraph, flatten
from costmodel.streamit.types import Stream


@dataclass(frozen=True, slots=True)
class Schedule:
    """Runs of each actor in turn: first `initial`, then `steady` repeatedly.

    Attributes:
        actor_graph: actors in execution order.
        initial: runs of each actor that fill the windows of filters that peek ahead; zeros if none does.
        steady: fewest runs of each actor in one steady pass that leave every channel as it was.
        buffers: capacity of each channel in items; INPUT and OUTPUT hold those of one pass.
    """

    actor_graph: ActorGraph
    initial: tuple[int, ...]
    steady: tuple[int, ...]
    buffers: tuple[int, ...]


def schedule(program: Stream) -> Schedule:
    """Compute the single-appearance schedule of a program: each actor appears once.

    Raises:
        GraphError: the balance equations have no solution.
    """
    actor_graph = flatten(program)
    steady = repetitions(actor_graph)
    initial = _initial_runs(actor_graph)
    left = _left(actor_graph, initial)
    buffers = [0] * actor_graph.channels
    for actor, first, runs in zip(actor_graph.actors, initial, steady, strict=True):
        for port in actor.outputs:
            buffers[port.channel] = max(first * port.items, left[port.channel] + runs * port.items)
        for port in actor.inputs:
            if port.channel == INPUT:
                buffers[INPUT] = max(first, runs) * port.items + port.peek - port.items
    return Schedule(actor_graph, tuple(initial), tuple(steady), tuple(buffers))


def repetitions(actor_graph: ActorGraph) -> list[int]:
    """Solve the balance equations: fewest runs of each actor in a steady pass.

    Raises:
        GraphError: there is no positive solution.
    """
    ends = _ends(actor_graph)
    runs: list[Fraction | None] = [None] * len(actor_graph.actors)
    for start in range(len(runs)):
        if runs[start] is None:
            _balance(actor_graph, ends, runs, start)
    return [int(run) for run in runs if run is not None]


def _ends(actor_graph: ActorGraph) -> dict[int, tuple[tuple[int, int], tuple[int, int]]]:
    """Channel between actors -> (writer, items), (reader, items)."""
    writers = {
        port.channel: (index, port.items) for index, actor in enumerate(actor_graph.actors) for port in actor.outputs
    }
    readers = {
        port.channel: (index, port.items) for index, actor in enumerate(actor_graph.actors) for port in actor.inputs
    }
    return {channel: (writers[channel], readers[channel]) for channel in writers.keys() & readers.keys()}


def _balance(
    actor_graph: ActorGraph,
    ends: dict[int, tuple[tuple[int, int], tuple[int, int]]],
    runs: list[Fraction | None],
    start: int,
) -> None:
    """Solve the equations of all actors connected to one, in the smallest whole numbers."""
    runs[start] = Fraction(1)
    found = [start]
    for index in found:
        for port in (*actor_graph.actors[index].inputs, *actor_graph.actors[index].outputs):
            if port.channel in (INPUT, OUTPUT):
                continue
            (writer, made), (reader, taken) = ends[port.channel]
            if (made == 0) != (taken == 0):
                raise GraphError(f"no steady state: {made} items are pushed for a reader that pops {taken}")
            if made == 0:
                continue
            other = reader if index == writer else writer
            run = runs[index]
            assert run is not None
            wanted = run * made / taken if index == writer else run * taken / made
            if runs[other] is None:
                runs[other] = wanted
                found.append(other)
            elif runs[other] != wanted:
                raise GraphError(
                    "no steady state: the weights of a joiner do not match the items that its branches push"
                )
    solved = [run for run in (runs[index] for index in found) if run is not None]
    scale = Fraction(math.lcm(*(run.denominator for run in solved)))
    scale /= math.gcd(*(int(run * scale) for run in solved))
    for index, run in zip(found, solved, strict=True):
        runs[index] = run * scale


def _initial_runs(actor_graph: ActorGraph) -> list[int]:
    """Runs that leave on each channel the items that its reader peeks ahead."""
    wanted = [0] * actor_graph.channels
    runs = [0] * len(actor_graph.actors)
    for index in reversed(range(len(runs))):
        actor = actor_graph.actors[index]
        needed = [math.ceil(Fraction(wanted[port.channel], port.items)) for port in actor.outputs if port.items]
        runs[index] = max(needed, default=0)
        for port in actor.inputs:
            wanted[port.channel] = runs[index] * port.items + port.peek - port.items
    return runs


def _left(actor_graph: ActorGraph, initial: Sequence[int]) -> list[int]:
    """Items on each channel after the initial runs."""
    left = [0] * actor_graph.channels
    for actor, runs in zip(actor_graph.actors, initial, strict=True):
        for port in actor.outputs:
            left[port.channel] += runs * port.items
        for port in actor.inputs:
            left[port.channel] -= runs * port.items
    return left
