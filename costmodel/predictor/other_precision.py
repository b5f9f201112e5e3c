"""Kernels in a precision that was hardly measured, from the same kernels in another one.

Matmuls in TF32 are predicted from float32 and float16, kernels in bfloat16 that are unlike measured ones from float16.
"""

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

BFLOAT16_FACTOR = 1.1
"""Factor by which the interval of a float16 kernel is widened at either end for the same kernel in bfloat16.

Both have two bytes and one rate on tensor cores. 419 kernels in bfloat16 on an H200 took 0.98 times as long as the same
kernels in float16 (median); nine of ten ATen kernels, matmuls and attention were within a tenth."""


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


def with_twins(
    chosen: Chosen, estimates: Sequence[Estimate], predict: Callable[[Chosen], Sequence[Estimate]]
) -> list[Estimate]:
    """Estimates, in which kernels in bfloat16 that are extrapolated have those of the same kernels in float16.

    Where those are extrapolated as well, estimates stay as they are.

    Args:
        chosen: kernels of any precision.
        estimates: their own estimates, in order.
        predict: predictor of float16 kernels.
    """
    found = list(estimates)
    places = [i for i, (kernel, _) in enumerate(chosen) if not found[i].in_range and _has(kernel, "bfloat16")]
    twins = predict([(as_float16(chosen[i][0], "bfloat16"), chosen[i][1]) for i in places]) if places else []
    for i, twin in zip(places, twins, strict=True):
        if twin.in_range:
            low_us, high_us = twin.low_us / BFLOAT16_FACTOR, twin.high_us * BFLOAT16_FACTOR
            found[i] = replace(twin, low_us=low_us, high_us=high_us)
    return found


def _has(kernel: Kernel, dtype: str) -> bool:
    return any(value.type.dtype == dtype for value in kernel.graph.values)


def as_float16(kernel: Kernel, dtype: str = "float32") -> Kernel:
    """The kernel with all tensors of a dtype in float16."""
    graph = kernel.graph
    values = tuple(Value(value.name, _half(value.type, dtype), value.role) for value in graph.values)
    ops = tuple(replace(op, types=tuple(_half(kind, dtype) for kind in op.types)) for op in graph.ops)
    return replace(kernel, graph=replace(graph, values=values, ops=ops), tf32=False)


def _half(kind: TensorType, dtype: str) -> TensorType:
    return replace(kind, dtype="float16") if kind.dtype == dtype else kind
