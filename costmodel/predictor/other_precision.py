"""Matmuls in TF32 on a device where none was measured, from the same matmuls in float32 and float16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from costmodel.ir import TensorType, Value
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.estimate import Estimate

Chosen = Sequence[tuple[Kernel, float]]
"""Kernels with their relative depths."""
TIMES_FLOAT16 = 2.0
"""Time of a matmul in TF32 over that in float16, without the launch.

Tensor cores compute half as fast, and operands take twice the bytes (NVIDIA H100 and A100 whitepapers)."""


def tf32_estimates(chosen: Chosen, predict: Callable[[Chosen], Sequence[Estimate]], floor_us: float) -> list[Estimate]:
    """Extrapolated estimates: twice the float16 time, not above the float32 time.

    The interval reaches from the float16 to the float32 time.

    Args:
        chosen: matmuls in TF32.
        predict: predictor of float32 and float16 kernels.
        floor_us: time of the smallest kernel, which does not double.
    """
    wide = predict([(replace(kernel, tf32=False), place) for kernel, place in chosen])
    half = predict([(as_float16(kernel), place) for kernel, place in chosen])
    return [_between(*both, floor_us) for both in zip(wide, half, strict=True)]


def _between(wide: Estimate, half: Estimate, floor_us: float) -> Estimate:
    doubled = max(half.us, floor_us + TIMES_FLOAT16 * (half.us - floor_us))
    us = min(wide.us, doubled)
    low_us, high_us = min(us, half.low_us), max(us, wide.high_us)
    return Estimate(us, low_us, high_us, in_range=False, host_us=wide.host_us)


def as_float16(kernel: Kernel) -> Kernel:
    """The kernel with all float32 tensors in float16."""
    graph = kernel.graph
    values = tuple(Value(value.name, _half(value.type), value.role) for value in graph.values)
    ops = tuple(replace(op, types=tuple(map(_half, op.types))) for op in graph.ops)
    return replace(kernel, graph=replace(graph, values=values, ops=ops), tf32=False)


def _half(kind: TensorType) -> TensorType:
    return replace(kind, dtype="float16") if kind.dtype == "float32" else kind
