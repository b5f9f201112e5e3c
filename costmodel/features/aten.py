"""Features of the kernels that eager execution runs operator by operator."""

from __future__ import annotations

import math

from costmodel.features.scalars import log2_of, number, window
from costmodel.ir import Graph, Op, operators
from costmodel.ir.strides import walk_of
from costmodel.kernels.kernel import Kernel

LONG_RUN = 1024
"""Length of a contiguous run beyond which a longer one makes no difference."""
_ATEN_KINDS = (
    "batch_norm",
    "add",
    "mul",
    "relu",
    "cat",
    "copy",
    "silu",
    "gelu",
    "sigmoid",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "mean",
    "layer_norm",
    "group_norm",
    "softmax",
    "max_pool2d",
    "avg_pool2d",
    "pad",
    "roll",
    "leaky_relu",
    "div",
    "sub",
    "index",
    "sum",
    "adaptive_avg_pool2d",
    "upsample",
)


_SAME_KERNEL = {"_fused_rms_norm": "layer_norm"}
"""Operators that run the kernel of another kind (aten/src/ATen/native/cuda/layer_norm_kernel.cu)."""


def aten_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of an operator that runs alone as one ATen kernel."""
    graph, op = kernel.graph, kernel.anchor
    sources = [graph.type_of(ref) for ref in op.refs()]
    largest = max([op.type, *sources], key=lambda kind: kind.numel)
    row = operators.lookup(op)
    kind = "upsample" if "upsample" in op.base else _SAME_KERNEL.get(op.base, row.kind)
    named = {f"is_{one}": float(kind == one) for one in _ATEN_KINDS}
    return named | {
        "other_kind": float(kind not in _ATEN_KINDS),
        "inputs": float(len(sources)),
        "log_largest": log2_of(largest.numel),
        "log_out": log2_of(op.type.numel),
        "log_reduced": log2_of(largest.numel / max(1, op.type.numel)),
        "log_last": log2_of(largest.shape[-1] if largest.shape else 1),
        "log_rows": log2_of(math.prod(largest.shape[:2])),
        "log_pixels": log2_of(math.prod(largest.shape[2:])),
        "strided": float(any(kind.layout == "strided" for kind in sources)),
        "broadcast": float(any(1 < kind.numel < op.type.numel for kind in sources)),
        "log_window": log2_of(window(op)),
        "work": float(row.work),
        "blocks": log2_of(largest.numel / 1024 / multiprocessors),
        "log_alone": log2_of(_one_by_one(op)),
        **_order(graph, op),
    }


def _one_by_one(op: Op) -> int:
    """Elements that PyTorch's kernel processes sequentially, even on an idle device; 0 if it does not.

    A group norm runs each group in one block. A smooth upsampling runs each pixel of all images and channels in one
    thread, unless in channels_last (aten/src/ATen/native/cuda, group_norm_kernel.cu and UpSampleBilinear2d.cu).
    """
    shape = op.type.shape
    if op.base == "native_group_norm":
        return op.type.numel // max(1, int(number(op.arg("N"), 1)) * int(number(op.arg("group"), 1)))
    smooth = "upsample" in op.base and "nearest" not in op.base
    return math.prod(shape[:2]) if smooth and op.type.layout != "nhwc" else 0


def _order(graph: Graph, op: Op) -> dict[str, float]:
    """Agreement of an elementwise operator's tensors on the order of their elements in memory."""
    walk = walk_of(graph, op)
    return {
        "log_run": log2_of(min(walk.run, LONG_RUN)),
        "mixed_order": float(walk.mixed),
        "log_hop": log2_of(walk.hop),
        "order_unknown": float(walk.unknown),
    }
