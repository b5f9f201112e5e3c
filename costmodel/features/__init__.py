"""Kernel -> named numbers: what the predictor is told of a kernel, and the roofline bound that it is measured against.

Every group of kernels has one tuple of feature names; vectors are built by name and a mismatch raises. Sizes enter as
binary logarithms, so that a network sees ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from costmodel.features.aten import aten_features
from costmodel.features.library_calls import attention_features, conv_features, gemm_features
from costmodel.features.roofline import CONVOLUTIONS, Roofline, anchor_flops
from costmodel.features.scalars import log2_of
from costmodel.features.triton import triton_features
from costmodel.ir import DTYPE_BYTES, operators
from costmodel.ir import flops as flops_module
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.traffic import traffic_bytes

__all__ = [
    "CONVOLUTIONS",
    "GROUPS",
    "OPTIONAL",
    "Roofline",
    "anchor_flops",
    "device_share",
    "featurize",
    "group_of",
]
OPTIONAL = frozenset({"position"})
"""Features that a predictor may go without: an ablation decides whether they are worth having."""


def group_of(kernel: Kernel) -> str:
    """Which predictor a kernel belongs to, one of `GROUPS`.

    `conv`, `gemm` and `attention` are library calls, `triton` fused groups, `aten` the rest.
    """
    if kernel.backend == "triton":
        return "triton"
    anchor = kernel.anchor
    if anchor.base in CONVOLUTIONS:
        return "conv"
    if anchor.base == "scaled_dot_product_attention":
        return "attention"
    return "gemm" if operators.lookup(anchor).flops is flops_module.matmul_flops else "aten"


def featurize(kernel: Kernel, roofline: Roofline, multiprocessors: int, position: float = 0.5) -> dict[str, float]:
    """Every feature of a kernel, by name, the names being those of its group.

    Args:
        kernel: what is described.
        roofline: the ceilings of the device; features that compare with them are relative to it.
        multiprocessors: of the device; how many tiles or blocks run at once.
        position: relative depth in the model, from 0 to 1.
    """
    graph, anchor = kernel.graph, kernel.anchor
    flops, traffic, bound = anchor_flops(kernel), traffic_bytes(graph), roofline.bound_us(kernel)
    dtype = anchor.type.dtype
    named = {
        "position": position,
        "log_bound_us": log2_of(bound),
        "log_traffic": log2_of(traffic),
        "log_flops": log2_of(flops),
        "log_intensity": log2_of(flops / max(1, traffic)),
        "log_written": log2_of(sum(graph.type_of(ref).nbytes for ref in graph.outputs)),
        "log_params": log2_of(sum(value.type.nbytes for value in graph.values if value.role == "param")),
        "compute_bound": float(flops / roofline.peak_of(kernel) > traffic / roofline.bytes_per_us),
        "dtype_bytes": float(DTYPE_BYTES[dtype]),
        "bfloat16": float(dtype == "bfloat16"),
        "nhwc": float(anchor.type.layout == "nhwc" or any(v.type.layout == "nhwc" for v in graph.values)),
    }
    named |= _SPECIFIC[group_of(kernel)](kernel, multiprocessors)
    return named


def device_share(kernel: Kernel, us: float, roofline: Roofline, multiprocessors: int) -> float:
    """How much of the device a kernel fills while it runs alone, 0 to 1: what is left, another kernel can use.

    A product's or a convolution's tiles (between 64 x 64 and 128 x 128) over the multiprocessors; for all others, the
    time that their traffic takes at full bandwidth over the time that they take.
    """
    features = featurize(kernel, roofline, multiprocessors)
    if "log_waves_64" in features and not features.get("depthwise"):
        return min(1.0, math.exp2((features["log_waves_64"] + features["log_waves_128"]) / 2))
    return min(1.0, traffic_bytes(kernel.graph) / roofline.bytes_per_us / max(us, roofline.floor_us))


_SPECIFIC: Mapping[str, Callable[[Kernel, int], dict[str, float]]] = {
    "conv": conv_features,
    "gemm": gemm_features,
    "attention": attention_features,
    "aten": aten_features,
    "triton": triton_features,
}
GROUPS = tuple(_SPECIFIC)
