"""Items that a steady pass of a schedule leaves in each channel."""

from __future__ import annotations

from costmodel.streamit.schedule import Schedule


def left_in_channels(plan: Schedule) -> list[int]:
    """Items that all actors together push into each channel, less those that they pop; the program's own ends too."""
    change = [0] * plan.actor_graph.channels
    for actor, runs in zip(plan.actor_graph.actors, plan.steady, strict=True):
        for port in actor.outputs:
            change[port.channel] += runs * port.items
        for port in actor.inputs:
            change[port.channel] -= runs * port.items
    return change
