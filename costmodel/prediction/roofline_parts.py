"""Parts of a kernel's roofline bound: arithmetic at peak, memory traffic at bandwidth, the smallest kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from costmodel.features import Roofline
from costmodel.features.roofline import anchor_flops, scratch_bytes
from costmodel.ir import operators
from costmodel.kernels.kernel import Kernel
from costmodel.report.kernel_prediction import COMPUTE, LAUNCH, MEMORY


@dataclass(frozen=True, slots=True)
class RooflineParts:
    """Work of a kernel, and the least times that it needs, microseconds.

    Attributes:
        flops: arithmetic operations.
        bytes: least memory traffic.
        compute_us: arithmetic at the device's peak; 0 where arithmetic never bounds.
        memory_us: traffic at the device's bandwidth.
        launch_us: time of the smallest kernel.
    """

    flops: int
    bytes: int
    compute_us: float
    memory_us: float
    launch_us: float

    @property
    def least_us(self) -> float:
        """Larger of arithmetic and traffic: the roofline, without the time of an empty kernel."""
        return max(self.compute_us, self.memory_us)

    @property
    def bound(self) -> str:
        """The largest part."""
        return largest(self.compute_us, self.memory_us, self.launch_us)


def largest(compute_us: float, memory_us: float, launch_us: float) -> str:
    """Name of the largest of three parts."""
    parts = {COMPUTE: compute_us, MEMORY: memory_us, LAUNCH: launch_us}
    return max(parts, key=lambda name: parts[name])


def roofline_parts(kernels: Iterable[Kernel], roofline: Roofline) -> list[RooflineParts]:
    """Parts of kernels, in order."""
    return [_parts(kernel, roofline) for kernel in kernels]


def _parts(kernel: Kernel, roofline: Roofline) -> RooflineParts:
    traffic = kernel.traffic_bytes + scratch_bytes(kernel)
    counted = anchor_flops(kernel)
    flops = counted or sum(operators.flops(kernel.graph, op) for op in kernel.graph.ops if not operators.is_view(op))
    compute_us = counted / roofline.peak_of(kernel)
    return RooflineParts(flops, traffic, compute_us, traffic / roofline.bytes_per_us, roofline.floor_us)


def roofline_us(parts: Sequence[RooflineParts]) -> float:
    """Least device time of kernels one after another."""
    return sum(part.least_us for part in parts)
