"""A CPU's passes: the host is the device, and wall time is the sum of kernels and of what lies between them.

A kernel measured alone already holds its own dispatch. Inside a model it finds other caches than alone, which a factor
for each kind of kernel stands for, and Python has more to do than to call it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from costmodel.features import group_of
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.issue_trace import IssueTrace

SERIAL_MODES: Mapping[str, str] = {"eager": "eager_serial", "default": "default_serial"}
"""The modes that a CPU has -> the table of costs that each has."""
KERNEL_KINDS = ("convolution", "matmul", "fused", "other")
"""Kinds of kernels whose time inside a model has a factor of its own, against their time alone."""
_KIND_OF_GROUP = {"conv": "convolution", "gemm": "matmul", "attention": "matmul", "triton": "fused"}


def kernel_counts(trace: IssueTrace, kernel_us: Sequence[float]) -> dict[str, float]:
    """Time of a pass's kernels alone, by kind, microseconds: what the factors multiply; and how many are loops.

    A loop alone is called through a wrapper, which is no part of it in a model.
    """
    counts = dict.fromkeys(KERNEL_KINDS, 0.0)
    counts["loop"] = float(sum(kind_of(kernel) == "fused" for kernel in trace.kernels))
    for kernel, us in zip(trace.kernels, kernel_us, strict=True):
        counts[kind_of(kernel)] += us
    return counts


def kind_of(kernel: Kernel) -> str:
    """One of KERNEL_KINDS."""
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
"""What takes time between the kernels of a pass, counted, by the table of its costs.

Between two library calls, Inductor joins all loops into one function (`CppScheduling`), which is called once.
"""
