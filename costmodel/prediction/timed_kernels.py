"""Kernels of a pass with everything that reports show of them: estimates, roofline, and the layers that they serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.features import CONVOLUTIONS
from costmodel.ir import Graph
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.layer_groups import Layer, Shares, compiled_shares, eager_shares
from costmodel.prediction.roofline_parts import RooflineParts, roofline_parts
from costmodel.predictor.estimate import Estimate
from costmodel.profiles.profile import Profile
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.timed_trace import TimedTrace

BENCHMARK_GAIN = 1.5
"""Assumed largest speedup of a convolution by `torch.backends.cudnn.benchmark`.

Of six whole models on an H200, none took less than 1 / 1.17 of its device time with it, three took more by 1 to 3 %
(docs/data/cudnn_benchmark_h200.jsonl); single convolutions gain more than the models that they are part of.
"""


@dataclass(frozen=True, slots=True)
class TimedKernels:
    """Kernels of a pass, in order of issue.

    Attributes:
        trace: issue trace of the pass.
        estimates: device and host time of each kernel.
        parts: roofline of each kernel.
        shares: share of each kernel's time by layer.
    """

    trace: IssueTrace
    estimates: Sequence[Estimate]
    parts: Sequence[RooflineParts]
    shares: Shares

    @property
    def timed(self) -> TimedTrace:
        """The trace with its times."""
        return TimedTrace.of(self.trace, self.estimates)

    def by_layer(self, layers: int) -> list[list[Part]]:
        """The parts of kernels that serve each of so many layers."""
        found: list[list[Part]] = [[] for _ in range(layers)]
        kernels = zip(self.trace.kernels, self.estimates, self.parts, self.shares, strict=True)
        for kernel, estimate, parts, shares in kernels:
            for place, share in shares.items():
                found[place].append(Part(kernel, estimate, parts, share))
        return found


@dataclass(frozen=True, slots=True)
class Part:
    """The share of a kernel, from 0 to 1, that serves a layer."""

    kernel: Kernel
    estimate: Estimate
    roofline: RooflineParts
    share: float

    @property
    def us(self) -> float:
        """Device time of the share."""
        return self.estimate.us * self.share


def _with_benchmark(kernels: Sequence[Kernel], estimates: Sequence[Estimate], profile: Profile) -> Sequence[Estimate]:
    """Estimates under `torch.backends.cudnn.benchmark`, with which whole models were measured, and no kernel alone.

    Convolutions keep the time with cuDNN's own choice, which the measured choice cannot exceed by much, but count as
    extrapolated and may be BENCHMARK_GAIN times as fast.
    """
    if not profile.device.cudnn_benchmark:
        return estimates
    return [
        replace(one, low_us=one.low_us / BENCHMARK_GAIN, in_range=False) if kernel.anchor.base in CONVOLUTIONS else one
        for kernel, one in zip(kernels, estimates, strict=True)
    ]


def timed_kernels(
    graph: Graph, layers: Sequence[Layer], traces: tuple[IssueTrace, IssueTrace], profile: Profile
) -> tuple[TimedKernels, TimedKernels]:
    """Predict the kernels of the eager and the compiled pass.

    Args:
        graph: captured graph.
        layers: its layers.
        traces: eager and compiled issue trace.
        profile: profile of the hardware.
    """
    eager, compiled = traces
    shares: Mapping[int, Shares] = {
        0: eager_shares(layers, eager.kernels),
        1: compiled_shares(graph, layers, compiled.kernels),
    }
    one, other = (
        TimedKernels(
            trace,
            _with_benchmark(trace.kernels, profile.predictor.predict(trace.kernels, trace.positions), profile),
            roofline_parts(trace.kernels, profile.predictor.roofline),
            shares[number],
        )
        for number, trace in enumerate(traces)
    )
    return one, other
