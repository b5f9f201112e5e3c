"""Compile time of a model: counts of the work that compiling takes, and seconds with a 90 % interval.

Seconds are those of the first calls of a compiled model until its calls are steady, in a process that has imported
Dynamo. *Cold* is with an empty cache and with no other process compiling; *warm* is in a second process, from the disk
cache that the first one filled. Inductor compiles Triton kernels in parallel, so cold costs hold for hosts with about
as many cores as the one that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costmodel.ir import Op
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.issue_trace import IssueTrace, origin_of
from costmodel.timeline.queue import Costs

COLD, WARM = "compile", "compile_warm"
"""Cost tables, and intervals by mode, of compiling with an empty cache and from a filled one."""
LEAST_S = 0.1
"""Least compile time that is predicted: costs of large models may add up to less than nothing for a small one."""
ASSUMED_WIDTH = math.log(2.0)
"""Half-width of the interval of a logarithm for a profile whose compile times were never compared with predictions."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Predicted seconds, with the bounds of their 90 % interval."""

    s: float
    low: float
    high: float


def compile_counts(kernels: Iterable[Kernel], parameters: int | None = None, graphs: int = 1) -> dict[str, float]:
    """Counts of compile time, by the names of the costs; equal in all modes, as capturing takes hundredths of a second.

    Captured operators are traced and lowered one by one; equal fused kernels are generated and compiled once. For each
    distinct grouped convolution cuDNN chooses among its engines in the first call. Guards check parameters.

    Args:
        kernels: kernels of the compiled model.
        parameters: number of tensors that a call checks and passes; None for those that the kernels read.
        graphs: number of graphs that the model is compiled as.
    """
    kernels = tuple(kernels)
    fused = {kernel.key[1]: len(kernel.graph.ops) for kernel in kernels if kernel.backend == "triton"}
    library = {kernel.key[1]: _groups(kernel.anchor) for kernel in kernels if kernel.backend != "triton"}
    if parameters is None:
        parameters = sum(value.role == "param" for kernel in kernels for value in kernel.graph.values)
    return {
        "operator": len({origin_of(name) for kernel in kernels for name in kernel.ops}),
        "distinct_kernel": len(fused),
        "fused_operator": sum(fused.values()),
        "grouped_convolution": sum(groups > 1 for groups in library.values()),
        "parameter": parameters,
        "further_graph": graphs - 1,
        "start": 1.0,
    }


def counts_of(compiled: IssueTrace) -> dict[str, float]:
    """Counts of compiling a whole model, from its compiled issue trace."""
    return compile_counts(compiled.kernels, compiled.parameters, compiled.subgraphs)


def _groups(op: Op) -> int:
    groups = op.arg("groups", 1) if op.base == "convolution" else 1
    return groups if isinstance(groups, int) else 1


def compile_us(counts: Mapping[str, float], costs: Costs) -> float:
    """Compile time, microseconds: the sum of counts times costs, at least LEAST_S. A count without a cost is free."""
    return max(LEAST_S * 1e6, sum(counts.get(name, 0.0) * us for name, us in costs.items()))


def with_interval(us: float, width: float = ASSUMED_WIDTH) -> Seconds:
    """Seconds of a compile time in microseconds, with an interval of a half-width of the logarithm."""
    seconds, spread = us / 1e6, math.exp(width)
    return Seconds(seconds, seconds / spread, seconds * spread)
