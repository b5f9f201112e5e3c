"""Captured graph -> plan, with times of the alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from costmodel.backend.graph_report import EAGER, INDUCTOR, PLAN
from costmodel.backend.options import BackendOptions
from costmodel.ir import Graph
from costmodel.planning.plan import Plan
from costmodel.planning.planner import Objective, make_plan
from costmodel.prediction.predict import predict_graph
from costmodel.profiles.profile import Profile


@dataclass(frozen=True, slots=True)
class Planning:
    """Plan of a graph beside its alternatives.

    Attributes:
        plan: the plan.
        times_ms: predicted latency by way to run the graph.
        build_s: predicted time to build by way to run it.
    """

    plan: Plan
    times_ms: Mapping[str, float]
    build_s: Mapping[str, float]

    def order(self, calls: float) -> tuple[str, ...]:
        """Ways to run the graph, the one with the least time within `calls` calls first."""
        return fastest_first(self.times_ms, self.build_s, calls)


def fastest_first(times_ms: Mapping[str, float], build_s: Mapping[str, float], calls: float) -> tuple[str, ...]:
    """Sort ways to run a graph by time a call, with the time to build them spread over `calls` calls."""
    return tuple(sorted(times_ms, key=lambda way: times_ms[way] + 1e3 * build_s.get(way, 0.0) / calls))


def plan_graph(graph: Graph, profile: Profile, wanted: BackendOptions) -> Planning:
    """Plan a captured graph.

    Raises:
        RequestError: no plan fits the memory limit.
        CaptureError: the graph has nothing to run.
    """
    modes = predict_graph(graph, profile).modes
    objective = Objective(calls=wanted.calls, memory_limit=wanted.memory_limit, folding=not wanted.is_strict)
    latency_ms = {mode: found.latency_ms for mode, found in modes.items()}
    plan = make_plan(graph, profile, latency_ms, torch.__version__, wanted=objective)
    times = {PLAN: plan.latency_ms["plan"], INDUCTOR: modes["default"].latency_ms, EAGER: modes["eager"].latency_ms}
    return Planning(plan, times, {PLAN: plan.build_s, INDUCTOR: modes["default"].compile_s or 0.0})
