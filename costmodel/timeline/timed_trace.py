"""An issue trace with the predicted times of its kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from costmodel.features import launches_of
from costmodel.ir import operators
from costmodel.predictor.estimate import Estimate
from costmodel.timeline.issue_trace import IssueTrace, dispatch_class, distinct_fused


@dataclass(frozen=True)
class TimedTrace:
    """An issue trace and the isolated times of its kernels, microseconds.

    Attributes:
        trace: the issue trace.
        device_us: device time of each kernel.
        host_us: host time to launch each kernel; Triton's launches have a cost of their own instead.
    """

    trace: IssueTrace
    device_us: Sequence[float]
    host_us: Sequence[float]

    @classmethod
    def of(cls, trace: IssueTrace, estimates: Sequence[Estimate]) -> TimedTrace:
        """A trace with the estimates of its kernels, in order."""
        return cls(trace, [one.us for one in estimates], [one.host_us for one in estimates])

    @cached_property
    def kinds(self) -> int:
        """Number of kinds of kernels."""
        return len({kernel.kind for kernel in self.trace.kernels})

    @cached_property
    def waits(self) -> frozenset[int]:
        """Kernels whose results Python reads, by their place in the trace."""
        kernels = enumerate(self.trace.kernels)
        return frozenset(index for index, kernel in kernels if operators.lookup(kernel.anchor).reads)

    @cached_property
    def parts(self) -> Sequence[int]:
        """Launches of each library call that follow one another; empty if every call makes one."""
        found = [launches_of(kernel) for kernel in self.trace.kernels]
        return found if any(count > 1 for count in found) else ()

    @cached_property
    def classes(self) -> int:
        """Number of dispatch classes of the kernels (`issue_trace.dispatch_class`)."""
        return len(set(map(dispatch_class, self.trace.kernels)))

    @cached_property
    def distinct_fused(self) -> int:
        """Number of distinct fused kernels."""
        return distinct_fused(self.trace.kernels)
