"""Features of kernels that only a training step runs, which have groups of their own."""

from __future__ import annotations

import math

from costmodel.features.library_calls import attention_features, window_and_groups
from costmodel.features.roofline import scratch_bytes
from costmodel.features.scalars import log2_of, number, odd, tiling, window
from costmodel.ir import Ref, operators
from costmodel.ir.flops import tensor_of
from costmodel.ir.op_table_training import TRAINING_ROWS
from costmodel.ir.training_costs import foreach_launches, foreach_lists, gradients_of
from costmodel.kernels.kernel import Kernel, grouping

CONV_BACKWARD, ATTENTION_BACKWARD, ATEN_BACKWARD = "conv_backward", "attention_backward", "aten_backward"
FOREACH = "foreach"
TRAINING_GROUPS = (CONV_BACKWARD, ATTENTION_BACKWARD, ATEN_BACKWARD, FOREACH)
"""Groups of kernels that only a training step runs."""
_OWN = {row.name: row for row in TRAINING_ROWS}
_FAMILIES = {
    "batch_norm": ("cudnn_batch_norm", "native_batch_norm"),
    "batch_norm_backward": ("cudnn_batch_norm_backward", "native_batch_norm_backward"),
    "layer_norm_backward": ("native_layer_norm_backward", "_fused_rms_norm_backward"),
    "group_norm_backward": ("native_group_norm_backward",),
    "softmax_backward": ("_softmax_backward_data", "_log_softmax_backward_data"),
    "loss": ("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward"),
    "cheap": ("threshold_backward", "hardtanh_backward", "leaky_relu_backward", "native_dropout_backward"),
    "costly": ("gelu_backward", "silu_backward", "hardswish_backward", "sigmoid_backward", "hardsigmoid_backward"),
    "max_pool_backward": ("max_pool2d_with_indices_backward", "adaptive_max_pool2d_backward"),
    "avg_pool_backward": ("avg_pool2d_backward", "_adaptive_avg_pool2d_backward"),
    "upsample_backward": ("upsample_bilinear2d_backward", "upsample_bicubic2d_backward", "upsample_nearest2d_backward"),
    "embedding_backward": ("embedding_dense_backward", "_index_put_impl", "_unsafe_index_put"),
}
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names}


def training_group(kernel: Kernel) -> str:
    """Group of a kernel that only a training step runs; empty for any other.

    Fused kernels of a backward graph are like those of a forward graph; so is the forward pass of attention.
    """
    anchor = kernel.anchor
    if kernel.backend == "triton":
        return ""
    if anchor.base == "convolution_backward":
        return CONV_BACKWARD
    if anchor.base == "cudnn_batch_norm":
        updates = anchor.arg("training") is True and isinstance(anchor.arg("running_mean"), Ref)
        return ATEN_BACKWARD if updates else ""
    row = _OWN.get(anchor.base)
    if row is None or row.kind == "attention":
        return ""
    return row.kind if row.kind in (ATTENTION_BACKWARD, FOREACH) else ATEN_BACKWARD


def conv_backward_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of the gradient of a convolution by input or by weight, as the matmul that it is.

    By input the matmul has a row for each pixel of the input and a column for each input channel; by weight, a row for
    each output channel and a column for each element of a filter.
    """
    graph, op = kernel.graph, kernel.anchor
    source, weight, gradient = (tensor_of(graph, op, name) for name in ("input", "weight", "grad_output"))
    groups = max(1, int(number(op.arg("groups"), 1)))
    by_input, by_weight, _ = gradients_of(op)
    sizes = weight.shape[2:] or (1,)
    pixels, made = math.prod(source.shape[2:]), math.prod(gradient.shape[2:])
    filter_size = math.prod(weight.shape[1:])
    kind = grouping(groups, weight.shape[1], weight.shape[0] // groups)
    rows, columns, inner = source.shape[0] * pixels, weight.shape[1], weight.shape[0] // groups * math.prod(sizes)
    if by_weight:
        rows, columns, inner = weight.shape[0] // groups, filter_size, gradient.shape[0] * made
    return {
        "by_input": float(by_input),
        "by_weight": float(by_weight),
        "log_weight_bytes": log2_of(weight.nbytes),
        "log_batch": log2_of(source.shape[0]),
        "log_in_channels": log2_of(source.shape[1]),
        "log_out_channels": log2_of(gradient.shape[1]),
        "log_in_pixels": log2_of(pixels),
        "log_out_pixels": log2_of(made),
        **window_and_groups(op, sizes, groups, kind),
        "in_nhwc": float(source.layout == "nhwc"),
        "grad_nhwc": float(gradient.layout == "nhwc"),
        "strided": float("strided" in (source.layout, gradient.layout)),
        "dims": float(len(sizes)),
        "in_channels_odd": float(weight.shape[1] % 4 != 0) + float(weight.shape[1] % 8 != 0),
        "out_channels_odd": float(gradient.shape[1] % 4 != 0) + float(gradient.shape[1] % 8 != 0),
        "in_pixels_odd": odd(pixels),
        **tiling(rows, max(1, columns), max(1, inner), groups, multiprocessors),
    }


def attention_backward_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of attention's backward pass: those of its forward pass, and the implementation."""
    base = kernel.anchor.base
    return {**attention_features(kernel, multiprocessors), "efficient": float("efficient" in base)}


def aten_backward_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    """Features of an ATen kernel of a backward pass, or of a norm in training."""
    graph, op = kernel.graph, kernel.anchor
    sources = [graph.type_of(ref) for ref in op.refs()]
    widest = max([op.type, *sources], key=lambda kind: kind.numel)
    family = _FAMILY_OF.get(op.base)
    return {
        **{f"is_{name}": float(name == family) for name in _FAMILIES},
        "other_kind": float(family is None),
        "log_scratch": log2_of(scratch_bytes(kernel)),
        "inputs": float(len(sources)),
        "log_largest": log2_of(widest.numel),
        "log_out": log2_of(op.type.numel),
        "log_last": log2_of(widest.shape[-1] if widest.shape else 1),
        "log_images": log2_of(widest.shape[0] if widest.shape else 1),
        "log_rows": log2_of(math.prod(widest.shape[:2])),
        "log_pixels": log2_of(math.prod(widest.shape[2:])),
        "strided": float(any(kind.layout == "strided" for kind in sources)),
        "log_window": log2_of(window(op)),
        "work": float(operators.lookup(op).work),
        "blocks": log2_of(widest.numel / 1024 / multiprocessors),
    }


def foreach_features(kernel: Kernel, _multiprocessors: int) -> dict[str, float]:
    """Features of a multi-tensor operator of an optimizer."""
    graph, op = kernel.graph, kernel.anchor
    lists = foreach_lists(graph, op)
    first = [kind.numel for kind in lists[0]] if lists else [0]
    return {
        "lists": float(len(lists)),
        "log_tensors": log2_of(len(first)),
        "log_elements": log2_of(sum(first)),
        "log_mean_elements": log2_of(sum(first) / max(1, len(first))),
        "log_launches": log2_of(foreach_launches(graph, op)),
        # square roots alone are made in tensors of their own
        "in_place": float(op.inplace or op.base != "_foreach_sqrt"),
    }
