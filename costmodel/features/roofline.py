"""The bound that a kernel is measured against: a device's ceilings, and what a kernel asks of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.ir import flops, operators
from costmodel.ir.op_table import Role
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.traffic import traffic_bytes

_PRODUCTS = (flops.matmul_flops, flops.attention_flops)
CONVOLUTIONS = frozenset({"convolution", "cudnn_convolution_relu", "cudnn_convolution_add_relu"})
"""Convolutions as they are, and those that cuDNN fuses with what follows: what holds for one tells of the others."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """A device's ceilings: memory traffic in bytes a microsecond, arithmetic in operations a microsecond by kind.

    `peak` maps `conv.float32`, `matmul.float16`, ... ; other arithmetic is never the bound on these devices.
    `floor_us` is what the smallest kernel takes.
    """

    bytes_per_us: float
    peak: Mapping[str, float]
    floor_us: float

    def bound_us(self, kernel: Kernel) -> float:
        """The larger of arithmetic over its peak and traffic over bandwidth, on top of the floor; microseconds.

        Williams, Waterman and Patterson, "Roofline" (CACM 2009).
        """
        traffic = traffic_bytes(kernel.graph) / self.bytes_per_us
        return self.floor_us + max(traffic, anchor_flops(kernel) / self.peak_of(kernel))

    def knows(self, kernel: Kernel) -> bool:
        """Whether the device was measured in the precision of a kernel; integers are no precision."""
        dtype = kernel.anchor.type.dtype
        inexact = dtype.startswith(("float", "bfloat", "complex"))
        return not inexact or any(name.rpartition(".")[2] == dtype for name in self.peak)

    def peak_of(self, kernel: Kernel) -> float:
        """The arithmetic ceiling of a kernel's anchor; infinite where arithmetic is not counted."""
        anchor = kernel.anchor
        kind = (
            "conv" if anchor.base in CONVOLUTIONS else "matmul" if operators.lookup(anchor).flops in _PRODUCTS else ""
        )
        return self.peak.get(f"{kind}.{anchor.type.dtype}", math.inf)


def anchor_flops(kernel: Kernel) -> int:
    """Arithmetic of the library call in a kernel; 0 for a fused group."""
    anchor = kernel.anchor
    return operators.flops(kernel.graph, anchor) if operators.lookup(anchor).role is Role.EXTERN else 0
