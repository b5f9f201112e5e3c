"""Kernels: what a device is asked to run, each as a small graph of its own that can be measured alone.

Eager execution runs one kernel call an operator; a compiler runs library calls and fused groups. Both are described by
the same type, so that one predictor serves both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from costmodel.ir import Graph, Op, operators
from costmodel.ir.op_table import Role
from costmodel.kernels.extractor import TIMES_ONE

COPY = "copy"
"""What users know copies by."""


@dataclass(frozen=True)
class Kernel:
    """One call that the host issues: operators computed together by one implementation.

    Attributes:
        backend: `aten` (a library call, as eager execution makes it), `triton` (a fused kernel that Inductor makes; on
            a CPU, a loop in C++) or `cudnn` (a convolution with its bias, addition and ReLU fused).
        graph: what it computes, with canonical names; inputs and parameters have the layouts they have in the model.
        ops: names of the operators it computes, in the graph that it was taken from.
        launches: how many device kernels the host launches for it; more than one where a reduction is split.
    """

    backend: str
    graph: Graph
    ops: tuple[str, ...] = field(compare=False)
    launches: int = 1

    @cached_property
    def anchor(self) -> Op:
        """The operator that costs most: the library call, else the reduction, else the last operator."""
        computing = [op for op in self.graph.ops if operators.lookup(op).role is not Role.VIEW]
        return max(
            reversed(computing or self.graph.ops),
            key=lambda op: operators.ANCHOR_RANK.get(operators.lookup(op).role, 0),
        )

    @cached_property
    def key(self) -> tuple[str, str]:
        """What makes two kernels take the same time: how they run, and their graph's text.

        An operator alone is the same graph as a library call and as a kernel of Inductor's.
        """
        return ("inductor" if self.backend == "triton" else "aten", str(self.graph))

    @cached_property
    def kind(self) -> str:
        """The anchor's name, as users know it: `conv2d`, `linear`, `layer_norm`, ...; `copy` for that of a part."""
        anchor = self.anchor
        copies = self.backend == "triton" and (anchor.op, anchor.arg("other")) == TIMES_ONE
        return COPY if copies else operators.lookup(anchor).kind


def grouping(groups: int, inputs: int, outputs: int) -> str:
    """How a convolution's channels are grouped, as far as cuDNN's kernels tell it apart; empty for one group.

    On an H200 it has fast kernels for groups of 4, 8, 16, ... channels (`even`); others (`uneven`) take several times
    as long, and the host twice as long to issue. Depthwise ones that make several channels of one (`multiplied`) are
    often issued one by one.

    Args:
        groups: how many.
        inputs: channels that each reads.
        outputs: channels that each makes.
    """
    if groups == 1:
        return ""
    if inputs == 1:
        return "depthwise" if outputs == 1 else "multiplied"
    return "even" if inputs.bit_count() == outputs.bit_count() == 1 and inputs > 2 else "uneven"
