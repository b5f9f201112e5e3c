"""Counts of the work that takes host time in a pass; host time is their sum weighted by costs of the same names."""

from __future__ import annotations

import math
from collections.abc import Mapping

from costmodel.kernels.kernel import Kernel
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.queue import Costs
from costmodel.timeline.timed_trace import TimedTrace

MATMULS = ("linear", "matmul")
"""Kinds of kernels that are matmuls."""
CALL_COSTS = ("dispatch", "matmul", "triton", "output")
"""Costs of a compiled pass that are counted by kernel."""

FURTHER_GRAPH = 0.5
"""Share of the first graph's entry that each further one costs: the call and the last synchronisation come once.

Median over six small models with two to four graphs on an H200 (`docs/data/user_models_h200.jsonl`)."""


def entries(graphs: int) -> float:
    """Cost of entering compiled graphs, in entries of the first."""
    return 1.0 + FURTHER_GRAPH * max(0, graphs - 1)


def eager_counts(timed: TimedTrace) -> dict[str, float]:
    """Counts of eager host time.

    A call takes longer in a pass with more kinds of kernels, whose code leaves the CPU's caches between calls
    (`kinds`), and with more calls, as each has its own modules and tensors (`calls`). An isolated kernel is measured
    with all views that lead to it. Views shared by several kernels are subtracted by `view_again`.
    """
    trace, alone = timed.trace, sum(timed.host_us)
    return {
        "dispatch": alone,
        "kinds": alone * timed.kinds,
        "calls": alone * math.log(max(1, len(trace.kernels))),
        "convolution": sum(kernel.anchor.base == "convolution" for kernel in trace.kernels),
        "matmul": sum(kernel.kind in MATMULS for kernel in trace.kernels),
        "view": trace.calls.views,
        "view_again": trace.views_again,
        "idle": trace.calls.idle,
        "write": trace.calls.writes,
        "module": trace.calls.modules,
        "start": 1.0,
    }


def default_counts(timed: TimedTrace) -> dict[str, float]:
    """Counts of the host time of a compiled pass."""
    trace = timed.trace
    calls = [call_counts(*call) for call in zip(trace.kernels, timed.host_us, strict=True)]
    counts = {name: sum(call.get(name, 0.0) for call in calls) for name in CALL_COSTS}
    once = {"distinct": timed.distinct_fused, "start": entries(trace.subgraphs)}
    return counts | once | {"parameter": trace.parameters, "module": trace.checked_modules}


def call_counts(kernel: Kernel, host_us: float) -> dict[str, float]:
    """Counts of one kernel: a library call by its isolated host time, a matmul, or Triton launches and their outputs.

    Compiled code calls matmuls directly, eager execution through views and copies; so they have a cost of their own.
    """
    if kernel.backend == "triton":
        return {"triton": kernel.launches, "output": len(kernel.graph.outputs)}
    if kernel.kind in MATMULS:
        return {"matmul": 1.0}
    return {"dispatch": host_us}


def graph_counts(trace: IssueTrace) -> dict[str, float]:
    """Counts of the time that a graph's replay adds to its device time."""
    return {"parameter": trace.parameters, "module": trace.checked_modules, "start": 1.0}


def total(counts: Mapping[str, float], costs: Costs) -> float:
    """Sum of counts times costs, microseconds."""
    return sum(amount * costs[name] for name, amount in counts.items())
