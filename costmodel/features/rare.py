"""Features of kernels with operators that few vision models call, which have groups of their own.

Only some hundred of them are measured, so each kind of operator has a feature of its own, and the rest are physical
quantities: traffic, arithmetic, scratch memory, lengths and counts.
"""

from __future__ import annotations

import math

from costmodel.features.roofline import scratch_bytes
from costmodel.features.scalars import largest, log2_of, number
from costmodel.features.triton import triton_features
from costmodel.ir import Graph, Op, Ref, operators
from costmodel.ir.rare_costs import fft_lengths, length_along
from costmodel.kernels.kernel import Kernel, kernel_elements

LARGE_KERNEL = 13 * 13
"""Elements of a depthwise convolution's kernel from which it counts as large; the common ones have 49 at most."""
_FAMILIES = {
    "fft": ("_fft_r2c", "_fft_c2c", "_fft_c2r"),
    "grid": ("grid_sampler_2d", "grid_sampler_3d"),
    "affine": ("affine_grid_generator",),
    "nearest": (
        "upsample_nearest1d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact3d",
    ),
    "linear": ("upsample_linear1d", "upsample_trilinear3d"),
    "cubic": ("upsample_bicubic2d",),
    "antialias": ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    "columns": ("im2col", "col2im"),
    "pad": ("reflection_pad1d", "reflection_pad3d", "replication_pad1d", "replication_pad3d"),
    "deform": ("torchvision_deform_conv2d",),
    "nms": ("torchvision_nms",),
    "roi": ("torchvision_roi_align", "torchvision_roi_pool", "torchvision_ps_roi_align", "torchvision_ps_roi_pool"),
    "gather": ("gather", "take", "masked_select"),
    "scatter": ("scatter", "index_put", "index_copy", "index_fill", "max_unpool2d", "max_unpool3d"),
    "accumulate": ("scatter_add", "scatter_reduce", "index_add"),
    "search": ("searchsorted", "bucketize"),
    "sort": ("sort", "mode", "_unique2"),
    "topk": ("topk", "kthvalue", "median"),
    "scan": ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"),
    "pool": (
        "max_pool3d_with_indices", "avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "_adaptive_avg_pool3d",
    ),
    "weight_norm": ("_weight_norm_interface",),
    "distance": ("_cdist_forward",),
    "product": ("bmm", "mm", "baddbmm", "addmm"),
}  # fmt: skip
"""Operators that are alike, by family."""
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names}


def is_rare(kernel: Kernel) -> bool:
    """Whether a kernel has an operator that few vision models call.

    So are convolutions that are transposed, three-dimensional, or depthwise with a large kernel, and all kernels on
    complex numbers.
    """
    ops = kernel.graph.ops
    if any(operators.lookup(op).rare or any(kind.is_complex for kind in op.types) for op in ops):
        return True
    anchor = kernel.anchor
    if anchor.base != "convolution":
        return False
    grouped = number(anchor.arg("groups"), 1) > 1
    unusual = bool(anchor.arg("transposed")) or len(anchor.type.shape) > 4
    return unusual or (grouped and kernel_elements(kernel) >= LARGE_KERNEL)


def is_unruled(kernel: Kernel) -> bool:
    """Whether a kernel has an operator without a cost rule."""
    return not all(operators.lookup(op).supported for op in kernel.graph.ops)


def is_unmeasured(kernel: Kernel) -> bool:
    """Whether no unit that is measured holds such a kernel: by its operator, or instance norm by cuDNN.

    ATen's own batch norm of batch statistics is measured, with weights that are standardised by it. A batch norm that
    updates running statistics is one of a training step.
    """
    anchor = kernel.anchor
    updates = isinstance(anchor.arg("running_mean"), Ref)
    statistics = anchor.base == "cudnn_batch_norm" and anchor.arg("training") is True and not updates
    return kernel.backend == "aten" and (statistics or not operators.lookup(anchor).measured)


def rare_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of a library call or an ATen kernel of a rare operator."""
    graph, op = kernel.graph, kernel.anchor
    kinds = [op.type, *(graph.type_of(ref) for ref in op.refs())]
    widest = max(kinds, key=lambda kind: kind.numel)
    return {
        **_families([op]),
        **_numbers(graph, op),
        "log_flops_anchor": log2_of(operators.flops(graph, op)),
        "log_scratch": log2_of(scratch_bytes(kernel)),
        "inputs": float(len(kinds) - 1),
        "log_largest": log2_of(widest.numel),
        "log_out": log2_of(op.type.numel),
        "log_last": log2_of(widest.shape[-1] if widest.shape else 1),
        "log_rows": log2_of(math.prod(widest.shape[:2])),
        "log_pixels": log2_of(math.prod(widest.shape[2:])),
        "rank": float(len(widest.shape)),
        "strided": float(any(kind.layout == "strided" for kind in kinds)),
        "complex": float(any(kind.is_complex for kind in kinds)),
        "work": float(operators.lookup(op).work),
        "blocks": log2_of(widest.numel / 1024 / multiprocessors),
    }


def rare_triton_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of a fused kernel with a rare operator."""
    rare = [op for op in kernel.graph.ops if operators.lookup(op).rare]
    first = rare[0] if rare else kernel.anchor
    return {
        **triton_features(kernel, multiprocessors),
        **_families(rare),
        **_numbers(kernel.graph, first),
        "log_rare": log2_of(sum(op.type.numel for op in rare)),
        "launches": float(sum(operators.lookup(op).scatters for op in rare)),
    }


def _families(ops: list[Op]) -> dict[str, float]:
    found = {_FAMILY_OF.get(op.base) for op in ops}
    return {f"is_{family}": float(family in found) for family in _FAMILIES}


def _numbers(graph: Graph, op: Op) -> dict[str, float]:
    """Lengths, counts and modes that the time of a rare operator depends on."""
    source = graph.type_of(op.refs()[0]) if op.refs() else op.type
    lengths = fft_lengths(graph, op) if _FAMILY_OF.get(op.base) == "fft" else (length_along(source, op),)
    indices = [graph.type_of(ref) for ref in op.refs()]
    return {
        "log_length": log2_of(math.prod(lengths)),
        "lengths": float(len(lengths)),
        "log_prime": math.log2(max(map(_largest_prime, lengths))) if len(lengths) > 1 or lengths[0] > 1 else 0.0,
        "log_indices": log2_of(max((kind.numel for kind in indices if kind.dtype == "int64"), default=0)),
        "log_chosen": log2_of(number(op.arg("k"))),
        "mode": number(op.arg("interpolation_mode")),
        "padding_mode": number(op.arg("padding_mode")),
        "log_window": log2_of(_window(graph, op)),
        "stride": largest(op.arg("stride")),
    }


def _window(graph: Graph, op: Op) -> float:
    """Elements that each result reads: of a pooling window, a convolution's kernel, or of a change of size."""
    weight = op.arg("weight")
    if isinstance(weight, Ref):
        return float(math.prod(graph.type_of(weight).shape[2:]))
    size = op.arg("kernel_size")
    if isinstance(size, tuple):
        return float(math.prod(side for side in size if isinstance(side, int)))
    source = graph.type_of(op.refs()[0]) if op.refs() else op.type
    return source.numel / max(1, op.type.numel) if "pool" in op.base or "upsample" in op.base else 0.0


def _largest_prime(size: int) -> int:
    """Largest prime factor of a size; 1 for 1."""
    found, divisor = 1, 2
    while divisor * divisor <= size:
        while size % divisor == 0:
            found, size = divisor, size // divisor
        divisor += 1
    return max(found, size)
