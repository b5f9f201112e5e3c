"""Predicted speedup of each unit, by which drawings colour it."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.ir import Graph
from costmodel.prediction.layers import Unit
from costmodel.profiles.profile import Profile
from costmodel.timeline.issue_trace import issue_traces, origin_of


def unit_speedups(graph: Graph, units: Sequence[Unit], profile: Profile) -> list[float | None]:
    """Eager over compiled device time of each unit, in order; None for one without kernels in either pass.

    Args:
        graph: captured graph.
        units: its units on the profile's device.
        profile: profile of the hardware.
    """
    eager, compiled = issue_traces(graph, profile.device)
    before, after = (profile.predictor.predict(trace.kernels, trace.positions) for trace in (eager, compiled))
    eager_us: dict[str, float] = {}
    for kernel, estimate in zip(eager.kernels, before, strict=True):
        name = origin_of(kernel.ops[0])
        eager_us[name] = eager_us.get(name, 0.0) + estimate.us
    found: list[float | None] = []
    for unit in units:
        was = sum(eager_us.get(op.name, 0.0) for op in unit.ops)
        now = sum(after[index].us for index in unit.kernels)
        found.append(was / now if was and now else None)
    return found
