"""Features of library calls: convolutions, matmuls, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costmodel.features.scalars import elongation, largest, log2_of, number, odd, operand, side, tiling
from costmodel.ir import Graph, Op, Ref
from costmodel.ir.strides import strides_of
from costmodel.kernels.kernel import Kernel, grouping


def conv_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of a convolution and the operators that cuDNN fuses with it."""
    graph, op = kernel.graph, kernel.anchor
    source, weight = operand(graph, op, "input", "self"), operand(graph, op, "weight")
    groups = max(1, int(number(op.arg("groups"), 1)))
    spatial = math.prod(op.type.shape[2:])
    inner = math.prod(weight.shape[1:])
    columns = op.type.shape[1] // groups
    kernel_sizes = weight.shape[2:] or (1,)
    kind = grouping(groups, weight.shape[1], columns)
    tokens = source.layout == "strided" and _channels_last(graph, op)
    return {
        "log_weight_bytes": log2_of(weight.nbytes),
        "fused": float(op.base != "convolution"),
        "residual": float(op.base == "cudnn_convolution_add_relu"),
        "log_batch": log2_of(source.shape[0]),
        "log_in_channels": log2_of(source.shape[1]),
        "log_out_channels": log2_of(op.type.shape[1]),
        "log_in_pixels": log2_of(math.prod(source.shape[2:])),
        "log_out_pixels": log2_of(spatial),
        **window_and_groups(op, kernel_sizes, groups, kind),
        "bias": float(isinstance(op.arg("bias"), Ref)),
        "in_nhwc": float(source.layout == "nhwc" or tokens),
        "in_strided": float(source.layout == "strided" and not tokens),
        "in_viewed": float(any(op.arg(name) == Ref(view.name) for view in graph.ops for name in ("input", "self"))),
        "out_nhwc": float(op.type.layout == "nhwc"),
        "weight_nhwc": float(weight.layout == "nhwc"),
        "dims": float(len(kernel_sizes)),
        "in_channels_odd": float(weight.shape[1] % 4 != 0) + float(weight.shape[1] % 8 != 0),
        "in_pixels_odd": odd(math.prod(source.shape[2:])),
        "out_pixels_odd": odd(spatial),
        **tiling(source.shape[0] * spatial, columns, inner, groups, multiprocessors),
    }


def window_and_groups(op: Op, sizes: Sequence[int], groups: int, kind: str) -> dict[str, float]:
    """Features of the window and the groups of a convolution, or of its gradient.

    Args:
        op: the convolution, or the operator of its gradient.
        sizes: extent of the window in each dimension.
        groups: groups of channels.
        kind: how they divide the channels, a result of `grouping`.
    """
    return {
        "kernel_size": side(sizes),
        "oblong": elongation(sizes),
        "pointwise": float(math.prod(sizes) == 1),
        "stride": number(op.arg("stride"), 1),
        "padding": largest(op.arg("padding")),
        "dilation": number(op.arg("dilation"), 1),
        "log_groups": log2_of(groups),
        "depthwise": float(kind in ("depthwise", "multiplied")),
        "grouped": float(kind in ("even", "uneven")),
        "uneven_groups": float(kind == "uneven"),
        "multiplied": float(kind == "multiplied"),
        "transposed": float(bool(op.arg("transposed"))),
    }


def _channels_last(graph: Graph, op: Op) -> bool:
    """Whether the convolved view is in channels_last, as a feature map reshaped from tokens is; cuDNN treats it so."""
    source = op.arg("input") or op.arg("self")
    strides = strides_of(graph, source) if isinstance(source, Ref) else None
    return strides is not None and len(strides) > 2 and strides[1] == 1


def gemm_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of a matmul, or of a matrix-vector product."""
    graph, op = kernel.graph, kernel.anchor
    left = operand(graph, op, "mat1", "batch1", "self", "input")
    right = operand(graph, op, "mat2", "batch2", "vec2", "vec")
    if op.base in ("mm", "bmm"):
        left = operand(graph, op, "self")
    rows, inner = left.shape[-2] if len(left.shape) > 1 else 1, left.shape[-1]
    batch = left.shape[0] if len(left.shape) == 3 else 1
    return {
        "batched": float(len(left.shape) == 3),
        "bias": float(op.base in ("addmm", "baddbmm")),
        "left_strided": float(left.layout == "strided"),
        "right_strided": float(right.layout == "strided"),
        "weights": float(any(value.role == "param" for value in graph.values)),
        "single_row": float(rows == 1),
        **tiling(rows, op.type.shape[-1] if op.type.shape else 1, inner, batch, multiprocessors),
    }


def attention_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of scaled dot-product attention."""
    graph, op = kernel.graph, kernel.anchor
    query, key = operand(graph, op, "query"), operand(graph, op, "key")
    heads = math.prod(query.shape[:-2])
    return {
        "log_heads": log2_of(heads),
        "log_queries": log2_of(query.shape[-2]),
        "log_keys": log2_of(key.shape[-2]),
        "log_head_size": log2_of(query.shape[-1]),
        "dims": float(len(query.shape)),
        "masked": float(isinstance(op.arg("attn_mask"), Ref)),
        "strided": float(query.layout == "strided"),
        "log_blocks": log2_of(heads * math.ceil(query.shape[-2] / 64) / multiprocessors),
    }
