"""Predictions of kernels as frozen records: times in the queue simulation of a mode, and what bounds them."""

from __future__ import annotations

from dataclasses import dataclass

COMPUTE, MEMORY, LAUNCH = "compute", "memory", "launch"
"""Bounds of a kernel: arithmetic, memory traffic, or the time of the smallest kernel, which no work fills."""


@dataclass(frozen=True, slots=True)
class KernelPrediction:
    """One kernel of a call in one mode; times in microseconds, counted from the start of the call.

    Device times are those of kernels alone, which add up to the device times of layers. Start times are those of the
    queue simulation before its correction by whole models, so that the last kernel ends near the latency of the mode.

    Attributes:
        name: the library call, or the operators of a fused kernel: `batch_norm+relu`.
        layers: names of the layers that it serves, in order.
        backend: `aten` (library call), `triton` (fused kernel of Inductor; on a CPU, a loop in C++) or `cudnn`.
        flops: arithmetic operations, 2 a multiply-accumulate.
        bytes: least memory traffic.
        host_start_us, host_us: when the host begins to launch it, and for how long; 0 us for a kernel that a CUDA graph
            replays, unless it is the first.
        device_start_us, device_us: when the device begins to run it, and for how long.
        low_us, high_us: 90 % prediction interval of the device time.
        bound: COMPUTE, MEMORY or LAUNCH: the largest of arithmetic at peak, traffic at bandwidth, smallest kernel.
        extrapolated: whether the kernel is far from any measured one.
    """

    name: str
    layers: tuple[str, ...]
    backend: str
    flops: int
    bytes: int
    host_start_us: float
    host_us: float
    device_start_us: float
    device_us: float
    low_us: float
    high_us: float
    bound: str
    extrapolated: bool
