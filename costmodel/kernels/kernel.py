"""Kernels: launches or library calls on a device, each with a small graph that can be measured alone.

Eager execution runs one kernel for each operator; a compiler runs library calls and fused groups. Both have the same
type, so that one predictor serves both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from costmodel.ir import Graph, Op, Ref, operators
from costmodel.kernels.extractor import TIMES_ONE
from costmodel.kernels.traffic import moved_bytes, needed_elements

TF32_RUNNER: Final = "aten_tf32"
"""Way to run a graph of ATen operators whose float32 matmuls may compute in TF32, in keys and in datasets."""
COPY = "copy"
"""Kind of a kernel that copies, shown to users."""


@dataclass(frozen=True)
class Kernel:
    """One call from the host: operators computed together by one implementation.

    Attributes:
        backend: `aten` (a library call, as in eager execution), `triton` (a fused kernel of Inductor; on a CPU, a loop
            in C++) or `cudnn` (a convolution fused with bias, addition and ReLU).
        graph: its operators under canonical names; inputs and parameters have their layouts in the model.
        ops: names of its operators in the whole graph.
        launches: number of device kernels that the host launches for it; several for a split reduction.
        tf32: whether a library may round the float32 operands of its matmul to TF32, as
            `torch.set_float32_matmul_precision("high")` allows.
    """

    backend: str
    graph: Graph
    ops: tuple[str, ...] = field(compare=False)
    launches: int = 1
    tf32: bool = False

    @cached_property
    def anchor(self) -> Op:
        """Operator that the kernel is named after: the library call, else the reduction, else the last operator."""
        computing = [op for op in self.graph.ops if not operators.is_view(op)]
        return max(
            reversed(computing or self.graph.ops),
            key=lambda op: operators.ANCHOR_RANK.get(operators.lookup(op).role, 0),
        )

    @cached_property
    def key(self) -> tuple[str, str]:
        """Identity of a kernel: two kernels with the same key take the same time.

        The backend is part of it, because one operator alone has the same graph as a library call and in Inductor; so
        is the precision of a matmul's arithmetic, which its graph does not show.
        """
        if self.tf32:
            return (TF32_RUNNER, str(self.graph))
        return ("inductor" if self.backend == "triton" else "aten", str(self.graph))

    @cached_property
    def needed_elements(self) -> Mapping[Ref, float]:
        """Elements of each value that the outputs need."""
        return needed_elements(self.graph)

    @cached_property
    def traffic_bytes(self) -> int:
        """Least memory traffic: the needed part of each input, once, and every output."""
        return moved_bytes(self.graph, self.needed_elements)

    @cached_property
    def kind(self) -> str:
        """Kind of the anchor (`conv2d`, `linear`, `layer_norm`, ...); `copy` for the copy of a part of a tensor."""
        anchor = self.anchor
        copies = self.backend == "triton" and (anchor.op, anchor.arg("other")) == TIMES_ONE
        return COPY if copies else operators.kind_of(anchor)


def kernel_elements(kernel: Kernel) -> int:
    """Elements of a convolution's kernel in one channel; 0 for other operators."""
    weight = kernel.anchor.arg("weight")
    return math.prod(kernel.graph.type_of(weight).shape[2:]) if isinstance(weight, Ref) else 0


def grouping(groups: int, inputs: int, outputs: int) -> str:
    """Class of a grouped convolution by which cuDNN chooses a kernel; empty for one group.

    On an H200 cuDNN has fast kernels for groups of 4, 8, 16, ... channels (`even`); others (`uneven`) take several
    times as long, and twice as much host time. Depthwise convolutions with a channel multiplier (`multiplied`) are
    often launched group by group.

    Args:
        groups: number of groups.
        inputs: input channels of a group.
        outputs: output channels of a group.
    """
    if groups == 1:
        return ""
    if inputs == 1:
        return "depthwise" if outputs == 1 else "multiplied"
    return "even" if inputs.bit_count() == outputs.bit_count() == 1 and inputs > 2 else "uneven"
