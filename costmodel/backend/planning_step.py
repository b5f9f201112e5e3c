"""Captured graph -> plan, with times of the alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import torch

from costmodel.backend.graph_report import EAGER, INDUCTOR, PLAN
from costmodel.backend.options import BackendOptions
from costmodel.ir import Graph
from costmodel.planning.kept_plans import KeptPlan, is_keeping, keep_plan, key_of, load_kept
from costmodel.planning.plan import Plan, fingerprint
from costmodel.planning.planner import Objective, make_plan
from costmodel.prediction.arithmetic import DEFAULT, Arithmetic
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles.profile import Profile


@dataclass(frozen=True, slots=True)
class Planning:
    """Plan of a graph beside its alternatives.

    Attributes:
        plan: the plan.
        times_ms: predicted latency by way to run the graph.
        build_s: predicted time to build by way to run it.
        measured_ms: measured latency by way to run it, of an earlier process; empty if there is none.
        key: key under which the result is kept; empty if it is not kept.
        is_kept: whether it is the result of an earlier process.
    """

    plan: Plan
    times_ms: Mapping[str, float]
    build_s: Mapping[str, float]
    measured_ms: Mapping[str, float] = field(default_factory=dict)
    key: str = ""
    is_kept: bool = False

    def order(self, calls: float) -> tuple[str, ...]:
        """Ways to run the graph, the one with the least time within `calls` calls first."""
        return fastest_first(self.measured_ms or self.times_ms, self.build_s, calls)

    def keep(self, plan: Plan | None = None, measured_ms: Mapping[str, float] | None = None) -> None:
        """Keep the result for later processes.

        Args:
            plan: the plan with the regions that passed their trial; None for the plan as it was made.
            measured_ms: measured latency by way; None for none.
        """
        if self.key:
            keep_plan(
                self.key, KeptPlan(plan or self.plan, self.times_ms, self.build_s, measured_ms or self.measured_ms)
            )


def fastest_first(times_ms: Mapping[str, float], build_s: Mapping[str, float], calls: float) -> tuple[str, ...]:
    """Sort ways to run a graph by time a call, with the time to build them spread over `calls` calls."""
    return tuple(sorted(times_ms, key=lambda way: times_ms[way] + 1e3 * build_s.get(way, 0.0) / calls))


def plan_graph(
    graph: Graph, profile: Profile, wanted: BackendOptions, device: str, arithmetic: Arithmetic = DEFAULT
) -> Planning:
    """Plan a captured graph, or find the plan that an earlier process made.

    Args:
        graph: from `capture_exactly`.
        profile: profile that predicts.
        wanted: options.
        device: name of the device that runs.
        arithmetic: settings of torch around the graph's calls, which has autocast's casts.

    Raises:
        RequestError: no plan fits the memory limit.
        CaptureError: the graph has nothing to run.
    """
    profile = arithmetic.on(profile)
    request = asdict(wanted) | asdict(arithmetic)
    key = key_of(fingerprint(graph), profile, device, request) if is_keeping() else ""
    if key and (found := load_kept(key)):
        plan = replace(found.plan, model=graph.name)
        return Planning(plan, found.times_ms, found.build_s, found.measured_ms, key, is_kept=True)
    made = _planned(graph, profile, wanted)
    return replace(made, plan=replace(made.plan, **asdict(arithmetic)), key=key)


def _planned(graph: Graph, profile: Profile, wanted: BackendOptions) -> Planning:
    modes = predict_graph(graph, profile).modes
    objective = Objective(calls=wanted.calls, memory_limit=wanted.memory_limit, folding=not wanted.is_strict)
    latency_ms = {mode: found.latency_ms for mode, found in modes.items()}
    plan = make_plan(graph, profile, latency_ms, torch.__version__, wanted=objective)
    times = {PLAN: plan.latency_ms["plan"], INDUCTOR: modes["default"].latency_ms, EAGER: modes["eager"].latency_ms}
    return Planning(plan, times, {PLAN: plan.build_s, INDUCTOR: modes["default"].compile_s or 0.0})
