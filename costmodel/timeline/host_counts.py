"""Counts of what takes the host time in a pass; costs of the same names multiply them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from costmodel.kernels.kernel import Kernel
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.queue import Costs
from costmodel.timeline.timed_trace import TimedTrace

PRODUCTS = ("linear", "matmul")
"""Kinds of kernels that are products of matrices."""
CALL_COSTS = ("dispatch", "matmul", "triton", "output")
"""What the host time of a compiled call is a sum of that goes by its kernels."""


def eager_counts(timed: TimedTrace) -> dict[str, float]:
    """What eager host time is a sum of: the amounts that the costs of the same names multiply.

    Every call takes longer in a pass that comes back to more: to more kinds of kernels, whose code has to be fetched
    into the CPU's caches again (`kinds`), and to more modules and tensors, of which each call has its own (`calls`).
    Measured alone, a kernel makes all views that lead to it, others' too: `view_again` takes those off.
    """
    trace, alone = timed.trace, sum(timed.host_us)
    return {
        "dispatch": alone,
        "kinds": alone * timed.kinds,
        "calls": alone * math.log(max(1, len(trace.kernels))),
        "convolution": sum(kernel.anchor.base == "convolution" for kernel in trace.kernels),
        "matmul": sum(kernel.kind in PRODUCTS for kernel in trace.kernels),
        "view": trace.calls.views,
        "view_again": trace.views_again,
        "idle": trace.calls.idle,
        "write": trace.calls.writes,
        "module": trace.calls.modules,
        "start": 1.0,
    }


def default_counts(timed: TimedTrace) -> dict[str, float]:
    """What the host time of a compiled call is a sum of."""
    trace = timed.trace
    calls = [_call_counts(*call) for call in zip(trace.kernels, timed.host_us, strict=True)]
    counts = {name: sum(call.get(name, 0.0) for call in calls) for name in CALL_COSTS}
    once = {"distinct": timed.distinct_fused, "start": trace.subgraphs}
    return counts | once | {"parameter": trace.parameters, "module": trace.checked_modules}


def _call_counts(kernel: Kernel, host_us: float) -> dict[str, float]:
    """What one kernel adds: a library's call, a product's, or launches, with an output allocated by a call each.

    Compiled code calls products directly, which eager execution gets to by way of views and copies.
    """
    if kernel.backend == "triton":
        return {"triton": kernel.launches, "output": len(kernel.graph.outputs)}
    if kernel.kind in PRODUCTS:
        return {"matmul": 1.0}
    return {"dispatch": host_us}


def graph_counts(trace: IssueTrace) -> dict[str, float]:
    """What a graph's replay adds to its device time is a sum of."""
    return {"parameter": trace.parameters, "module": trace.checked_modules, "start": 1.0}


def total(counts: Mapping[str, float], costs: Costs) -> float:
    """The sum of amounts times costs, microseconds."""
    return sum(amount * costs[name] for name, amount in counts.items())


def compile_us(counts: Mapping[str, float], costs: Costs) -> float:
    """What compiling takes, microseconds; of a few kernels the costs' line may tell less than nothing."""
    return max(0.0, total(counts, costs))
