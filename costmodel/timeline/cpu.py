"""Latency on a CPU: the host is the device, so wall time is the sum of kernels and of the time between them.

An isolated kernel's time includes its dispatch. Inside a model its operands are in other caches, which a factor for
each kind of kernel stands for, and Python does more than call it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from costmodel.features import group_of
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.issue_trace import IssueTrace

SERIAL_MODES: Mapping[str, str] = {"eager": "eager_serial", "default": "default_serial"}
"""Modes on a CPU -> their cost tables."""
KERNEL_KINDS = ("convolution", "matmul", "fused", "other")
"""Kinds of kernels, each with a factor from time alone to time inside a model."""
_KIND_OF_GROUP = {"conv": "convolution", "gemm": "matmul", "attention": "matmul", "triton": "fused"}


def kernel_counts(trace: IssueTrace, kernel_us: Sequence[float]) -> dict[str, float]:
    """Isolated time of a pass's kernels by kind, microseconds, and the number of loops.

    Loops are counted because an isolated one is called through a wrapper, which is not part of it in a model.
    """
    counts = dict.fromkeys(KERNEL_KINDS, 0.0)
    counts["loop"] = float(sum(kind_of(kernel) == "fused" for kernel in trace.kernels))
    for kernel, us in zip(trace.kernels, kernel_us, strict=True):
        counts[kind_of(kernel)] += us
    return counts


def kind_of(kernel: Kernel) -> str:
    """Kind of a kernel, one of KERNEL_KINDS."""
    return _KIND_OF_GROUP.get(group_of(kernel), "other")


def _eager_counts(trace: IssueTrace) -> dict[str, float]:
    return {"call": len(trace.kernels), "view": trace.views, "module": trace.calls.modules, "start": 1.0}


def _default_counts(trace: IssueTrace) -> dict[str, float]:
    fused = [kind_of(kernel) == "fused" for kernel in trace.kernels]
    joined = sum(here and before for before, here in itertools.pairwise(fused))
    return {
        "call": len(fused) - joined,
        "parameter": trace.parameters,
        "module": trace.checked_modules,
        "start": trace.subgraphs,
    }


BETWEEN: Mapping[str, Callable[[IssueTrace], dict[str, float]]] = {
    "eager_serial": _eager_counts,
    "default_serial": _default_counts,
}
"""Counts of the work between kernels, by cost table.

Inductor generates one function for all loops between two library calls (`CppScheduling`), so they are one call.
"""
