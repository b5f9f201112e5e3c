"""Interpreter of a stream program, item by item in the order of its schedule. Does not depend on torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from costmodel.errors import GraphError
from costmodel.streamit.actors import INPUT, OUTPUT, Actor, Joiner, Splitter
from costmodel.streamit.schedule import schedule
from costmodel.streamit.types import Filter, Separator, Stream

Item = TypeVar("Item")
Work = Callable[[Filter, Sequence[Item]], Sequence[Item]]
"""Function of a filter: items that it may peek at, the oldest first -> items to push."""


def run(program: Stream, items: Iterable[Item], work: Work[Item]) -> list[Item]:
    """Run a program on items: the initial runs of its schedule, then as many steady passes as the items allow.

    Raises:
        GraphError: the program has no steady state, or a filter pushed another number of items than declared.
    """
    plan = schedule(program)
    channels: list[deque[Item]] = [deque() for _ in range(plan.actor_graph.channels)]
    channels[INPUT].extend(items)
    actors = plan.actor_graph.actors
    runs = plan.initial
    while _enough(actors, runs, channels):
        for actor, times in zip(actors, runs, strict=True):
            for _ in range(times):
                _fire(actor, channels, work)
        if runs is plan.steady and not any(
            actor.inputs[0].channel == INPUT and actor.inputs[0].items for actor in actors
        ):
            break  # a program that reads nothing would run for ever
        runs = plan.steady
    return list(channels[OUTPUT])


def _enough(actors: Sequence[Actor], runs: Sequence[int], channels: Sequence[deque[Item]]) -> bool:
    """Whether the input holds the items that a pass pops, and peeks at in its last run."""
    held = len(channels[INPUT])
    needed = [
        times * port.items + port.peek - port.items
        for actor, times in zip(actors, runs, strict=True)
        for port in actor.inputs
        if port.channel == INPUT and times
    ]
    return all(held >= count for count in needed)


def _fire(actor: Actor, channels: Sequence[deque[Item]], work: Work[Item]) -> None:
    if isinstance(actor.work, Joiner):
        for port in actor.inputs:
            channels[actor.outputs[0].channel].extend(_take(channels[port.channel], port.items))
        return
    source = actor.inputs[0]
    window = list(islice(channels[source.channel], source.peek))
    _take(channels[source.channel], source.items)
    if isinstance(actor.work, Splitter):
        _split(actor, window, channels)
    elif isinstance(actor.work, Separator):
        passed = (item for item, weight in zip(window, actor.work.weights, strict=True) for _ in range(weight))
        channels[actor.outputs[0].channel].extend(passed)
    else:
        made = work(actor.work, window)
        if len(made) != actor.work.push:
            raise GraphError(f"{actor.work.name} pushed {len(made)} items, not {actor.work.push}")
        channels[actor.outputs[0].channel].extend(made)


def _split(actor: Actor, window: Sequence[Item], channels: Sequence[deque[Item]]) -> None:
    duplicate = isinstance(actor.work, Splitter) and not actor.work.weights
    items = iter(window)
    for port in actor.outputs:
        channels[port.channel].extend(window if duplicate else islice(items, port.items))


def _take(channel: deque[Item], count: int) -> list[Item]:
    return [channel.popleft() for _ in range(count)]
