"""Kernel -> named numbers, the predictor's features, and the roofline bound.

Each group of kernels has its own feature names. Sizes are binary logarithms, so that a network sees ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from costmodel.features.aten import aten_features
from costmodel.features.backward import (
    TRAINING_GROUPS,
    aten_backward_features,
    attention_backward_features,
    conv_backward_features,
    foreach_features,
    training_group,
)
from costmodel.features.library_calls import attention_features, conv_features, gemm_features
from costmodel.features.rare import is_rare, is_unmeasured, is_unruled, rare_features, rare_triton_features
from costmodel.features.roofline import CONVOLUTIONS, Roofline, anchor_flops, launches_of
from costmodel.features.scalars import log2_of
from costmodel.features.triton import triton_features
from costmodel.ir import DTYPE_BYTES, operators
from costmodel.ir import flops as flops_module
from costmodel.kernels.kernel import Kernel

__all__ = [
    "CONVOLUTIONS",
    "GROUPS",
    "OPTIONAL",
    "RARE_GROUPS",
    "TRAINING_GROUPS",
    "UNMEASURED",
    "UNRULED",
    "Roofline",
    "anchor_flops",
    "device_share",
    "featurize",
    "group_of",
    "is_rare",
    "is_unruled",
    "launches_of",
]
OPTIONAL = frozenset({"position"})
"""Features that a predictor may be trained without."""


UNRULED = "unruled"
"""Group of kernels with an operator without a cost rule, which is never trained."""
_CALLS = ("attention", "gemm")
"""Groups of library calls; such calls on rare operands are with those of ATen."""
IN_TF32 = "_tf32"
"""End of the name of a group of float32 matmuls that compute in TF32."""
UNMEASURED = "unmeasured"
"""Group of kernels with an operator that units never hold, which is never trained either."""


def group_of(kernel: Kernel) -> str:
    """Group of a kernel, which has a model of its own: one of `GROUPS`, `UNRULED` or `UNMEASURED`.

    `conv`, `gemm` and `attention` are library calls (`gemm_tf32` where float32 operands are rounded to TF32), `triton`
    fused kernels, `aten` the rest; kernels of operators that few vision models call have groups of their own (`rare_`).
    """
    if is_unruled(kernel):
        return UNRULED
    if is_unmeasured(kernel):
        return UNMEASURED
    if group := training_group(kernel):
        return group
    common = _common_group(kernel)
    if kernel.tf32 and common == "gemm" and not is_rare(kernel):
        return f"{common}{IN_TF32}"
    if not is_rare(kernel):
        return common
    return "rare_aten" if common in _CALLS else f"rare_{common}"


def _common_group(kernel: Kernel) -> str:
    """Group of a kernel as if its operators were common."""
    anchor = kernel.anchor
    if kernel.backend == "triton":
        return "triton"
    if anchor.base in CONVOLUTIONS:
        return "conv"
    if operators.lookup(anchor).kind == "attention" and anchor.base != "_native_multi_head_attention":
        return "attention"
    return "gemm" if operators.lookup(anchor).flops is flops_module.matmul_flops else "aten"


def featurize(kernel: Kernel, roofline: Roofline, multiprocessors: int, position: float = 0.5) -> dict[str, float]:
    """Features of a kernel by name, with the names of its group.

    Args:
        kernel: the kernel.
        roofline: ceilings of the device.
        multiprocessors: multiprocessors of the device, which bound the tiles that run at once.
        position: relative depth in the model, from 0 to 1.
    """
    graph, anchor = kernel.graph, kernel.anchor
    flops, traffic, bound = anchor_flops(kernel), kernel.traffic_bytes, roofline.bound_us(kernel)
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
    specific = _SPECIFIC.get(group_of(kernel))
    return named | specific(kernel, multiprocessors) if specific else named


def device_share(kernel: Kernel, us: float, roofline: Roofline, multiprocessors: int) -> float:
    """Share of the device that a kernel fills when it runs alone, 0 to 1; a concurrent kernel can use the rest.

    For a matmul or convolution, its tiles (between 64 x 64 and 128 x 128) over the multiprocessors. For other kernels,
    the time of their traffic at full bandwidth over their time.
    """
    features = featurize(kernel, roofline, multiprocessors)
    if "log_waves_64" in features and not features.get("depthwise"):
        return min(1.0, math.exp2((features["log_waves_64"] + features["log_waves_128"]) / 2))
    return min(1.0, kernel.traffic_bytes / roofline.bytes_per_us / max(us, roofline.floor_us))


_SPECIFIC: Mapping[str, Callable[[Kernel, int], dict[str, float]]] = {
    "conv": conv_features,
    "gemm": gemm_features,
    "attention": attention_features,
    "gemm_tf32": gemm_features,
    "aten": aten_features,
    "triton": triton_features,
    "rare_conv": conv_features,
    "rare_aten": rare_features,
    "rare_triton": rare_triton_features,
    "conv_backward": conv_backward_features,
    "attention_backward": attention_backward_features,
    "aten_backward": aten_backward_features,
    "foreach": foreach_features,
}
GROUPS = tuple(_SPECIFIC)
"""Groups of kernels."""
RARE_GROUPS = tuple(group for group in GROUPS if group.startswith("rare_"))
"""Groups of operators that few vision models call."""
