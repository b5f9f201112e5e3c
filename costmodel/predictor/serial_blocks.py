"""Times of kernels whose blocks of threads each work through many elements, one after the other.

Batch norm in training has a block for each channel, and a multi-tensor operator a block for each chunk of a tensor. A
kernel of few long blocks is slower than its traffic at full bandwidth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from costmodel.features import Roofline
from costmodel.ir.training_costs import foreach_blocks
from costmodel.kernels.kernel import Kernel


@dataclass(frozen=True, slots=True)
class ChannelCosts:
    """Time of batch norm in training, fitted to kernels on an H200.

    Attributes:
        of_bound: least time over the roofline bound.
        block_us: time of a block without elements.
        kept_per_us: elements a microsecond of a block that keeps its channel on the chip, and reads it once.
        read_per_us: elements a microsecond of a block that reads its channel anew in each pass.
    """

    of_bound: float
    block_us: float
    kept_per_us: float
    read_per_us: float


BATCH_NORMS = {
    "batch_norm": ChannelCosts(1.17, 1.36, 7350.0, 1520.0),
    "batch_norm_backward": ChannelCosts(1.05, 1.15, 3980.0, 1410.0),
}
"""Costs by kind of kernel, fitted to 63 and 73 kernels."""
MOST_KEPT = 28_000
"""Most elements of a channel that a block keeps on the chip; the fit lies between 25,088 and 39,200 elements."""
CHUNK_PER_US = 2500.0
"""Elements a microsecond of a block of a multi-tensor operator, which cannot end before its largest block (22 kernels
on an H200)."""


def batch_norm_us(kernel: Kernel, costs: ChannelCosts, roofline: Roofline, multiprocessors: int) -> float:
    """Time of batch norm in training, forward or backward: blocks of channels, a block a multiprocessor."""
    graph = kernel.graph
    widest = max((graph.type_of(ref) for ref in kernel.anchor.refs()), key=lambda kind: kind.numel)
    channels = widest.shape[1]
    elements = widest.numel / channels
    rate = costs.kept_per_us if elements <= MOST_KEPT else costs.read_per_us
    rounds = max(1.0, channels / multiprocessors)
    blocks_us = roofline.floor_us + rounds * (costs.block_us + elements / rate)
    return max(costs.of_bound * roofline.bound_us(kernel), blocks_us)


def foreach_us(kernel: Kernel, roofline: Roofline) -> float:
    """Time of a multi-tensor operator: each launch takes the time of its traffic, or of its largest block."""
    blocks = foreach_blocks(kernel.graph, kernel.anchor)
    bytes_each = kernel.traffic_bytes / max(1, math.fsum(map(sum, blocks)))
    return math.fsum(
        roofline.floor_us + max(sum(launch) * bytes_each / roofline.bytes_per_us, max(launch) / CHUNK_PER_US)
        for launch in blocks
    )
