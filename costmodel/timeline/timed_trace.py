"""A program with the predicted times of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from costmodel.predictor.predictor import Estimate
from costmodel.timeline.issue_trace import IssueTrace, dispatch_class, distinct_fused


@dataclass(frozen=True)
class TimedTrace:
    """A trace and what each of its kernels takes alone, microseconds.

    Attributes:
        trace: what is issued.
        device_us: of the device, in the kernels' order.
        host_us: of the host, to issue it among others like it; what Triton launches has costs of its own instead.
    """

    trace: IssueTrace
    device_us: Sequence[float]
    host_us: Sequence[float]

    @classmethod
    def of(cls, trace: IssueTrace, estimates: Sequence[Estimate]) -> TimedTrace:
        """The program with what was predicted of its kernels, in order."""
        return cls(trace, [one.us for one in estimates], [one.host_us for one in estimates])

    @cached_property
    def kinds(self) -> int:
        """How many kinds of kernels it issues."""
        return len({kernel.kind for kernel in self.trace.kernels})

    @cached_property
    def classes(self) -> int:
        """Number of dispatch classes among its kernels, as `issue_trace.dispatch_class` tells them apart."""
        return len(set(map(dispatch_class, self.trace.kernels)))

    @cached_property
    def distinct_fused(self) -> int:
        """How many of its fused kernels are not alike."""
        return distinct_fused(self.trace.kernels)
