"""Roofline bound of a kernel: ceilings of the device, and the arithmetic and traffic of the kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.ir import Op, flops, operators, training_costs
from costmodel.ir.op_table import Role
from costmodel.kernels.kernel import Kernel

_MATMULS = (
    flops.matmul_flops,
    flops.attention_flops,
    training_costs.attention_step_flops,
    training_costs.attention_backward_flops,
)
CONVOLUTIONS = frozenset({"convolution", "cudnn_convolution_relu", "cudnn_convolution_add_relu"})
"""Operators that are convolutions, those with fused epilogues included."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Ceilings of a device.

    Attributes:
        bytes_per_us: memory traffic.
        peak: arithmetic per microsecond by kind: `conv.float32`, `matmul.float16`, ...; other arithmetic never bounds.
        floor_us: time of the smallest kernel.
    """

    bytes_per_us: float
    peak: Mapping[str, float]
    floor_us: float

    def bound_us(self, kernel: Kernel) -> float:
        """Larger of arithmetic / peak and traffic / bandwidth, plus the floor of each launch; microseconds.

        Williams, Waterman and Patterson, "Roofline" (CACM 2009).
        """
        traffic = (kernel.traffic_bytes + scratch_bytes(kernel)) / self.bytes_per_us
        return self.floor_us * launches_of(kernel) + max(traffic, anchor_flops(kernel) / self.peak_of(kernel))

    def least_us(self, kernel: Kernel) -> float:
        """Traffic of all operands and results over bandwidth, plus the floor: a lower bound for any operator."""
        graph = kernel.graph
        computed = (op for op in graph.ops if not operators.is_view(op))
        made = sum(kind.nbytes for op in computed for kind in op.types)
        return self.floor_us + (sum(value.type.nbytes for value in graph.values) + made) / self.bytes_per_us

    def knows(self, kernel: Kernel) -> bool:
        """Whether the device was measured in a kernel's precision; integers always count as measured."""
        dtype = kernel.anchor.type.dtype.replace("complex64", "float32")
        inexact = dtype.startswith(("float", "bfloat", "complex"))
        return not inexact or any(name.rpartition(".")[2] == dtype for name in self.peak)

    def peak_of(self, kernel: Kernel) -> float:
        """Arithmetic ceiling of a kernel's anchor; infinite where arithmetic is not counted."""
        anchor = kernel.anchor
        precision = "tf32" if kernel.tf32 else anchor.type.dtype
        return self.peak.get(f"{arithmetic_kind(anchor)}.{precision}", math.inf)


def arithmetic_kind(op: Op) -> str:
    """`conv` or `matmul` for an operator whose arithmetic may bound it; else empty.

    cuDNN runs recurrent layers too, with the precision of its convolutions.
    """
    if (
        op.base in CONVOLUTIONS
        or op.base == "convolution_backward"
        or operators.lookup(op).flops is flops.recurrent_flops
    ):
        return "conv"
    return "matmul" if operators.lookup(op).flops in _MATMULS else ""


def launches_of(kernel: Kernel) -> int:
    """Launches of a library call that follow one another, such as the steps of a recurrent layer."""
    formula = operators.lookup(kernel.anchor).launches
    return formula(kernel.graph, kernel.anchor) if formula else 1


def scratch_bytes(kernel: Kernel) -> int:
    """Bytes that a library call writes and reads again beside its operands and results."""
    formula = operators.lookup(kernel.anchor).scratch
    return formula(kernel.graph, kernel.anchor) if formula else 0


def anchor_flops(kernel: Kernel) -> int:
    """Arithmetic of the library call in a kernel; 0 for a fused kernel."""
    anchor = kernel.anchor
    return operators.flops(kernel.graph, anchor) if operators.lookup(anchor).role is Role.EXTERN else 0
