"""Kernel -> named numbers: what the predictor is told of a kernel, and the roofline bound that it is measured against.

Every group of kernels has one tuple of feature names; vectors are built by name and a mismatch raises. Sizes enter as
binary logarithms, so that a network sees ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from costmodel import ops
from costmodel.compile import split_reduction
from costmodel.ir import DTYPE_BYTES, Graph, Op, Ref, TensorType
from costmodel.kernels import Kernel, grouping
from costmodel.ops import Role
from costmodel.strides import walk_of
from costmodel.traffic import needed_elements, traffic_bytes

Features = Mapping[str, float]
OPTIONAL = frozenset({"position"})
"""Features that a predictor may go without: an ablation decides whether they are worth having."""
TILT = 0.02
"""How much more a flat kernel's width counts than its height."""
LONG_RUN = 1024
"""Elements in a row beyond which a longer row makes no difference."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """A device's ceilings: memory traffic in bytes a microsecond, arithmetic in operations a microsecond by kind.

    `peak` maps `conv.float32`, `matmul.float16`, ... ; other arithmetic is never the bound on these devices.
    `floor_us` is what the smallest kernel takes.
    """

    bytes_per_us: float
    peak: Mapping[str, float]
    floor_us: float

    def bound_us(self, kernel: Kernel) -> float:
        """The larger of arithmetic over its peak and traffic over bandwidth, on top of the floor; microseconds.

        Williams, Waterman and Patterson, "Roofline" (CACM 2009).
        """
        traffic = traffic_bytes(kernel.graph) / self.bytes_per_us
        return self.floor_us + max(traffic, anchor_flops(kernel) / self.peak_of(kernel))

    def knows(self, kernel: Kernel) -> bool:
        """Whether the device was measured in the precision of a kernel; integers are no precision."""
        dtype = kernel.anchor.type.dtype
        inexact = dtype.startswith(("float", "bfloat", "complex"))
        return not inexact or any(name.rpartition(".")[2] == dtype for name in self.peak)

    def peak_of(self, kernel: Kernel) -> float:
        """The arithmetic ceiling of a kernel's anchor; infinite where arithmetic is not counted."""
        anchor = kernel.anchor
        kind = "conv" if anchor.base in CONVOLUTIONS else "matmul" if ops.lookup(anchor).flops in _PRODUCTS else ""
        return self.peak.get(f"{kind}.{anchor.type.dtype}", math.inf)


def anchor_flops(kernel: Kernel) -> int:
    """Arithmetic of the library call in a kernel; 0 for a fused group."""
    anchor = kernel.anchor
    return ops.flops(kernel.graph, anchor) if ops.lookup(anchor).role is Role.EXTERN else 0


_PRODUCTS = (ops.matmul_flops, ops.attention_flops)
CONVOLUTIONS = frozenset({"convolution", "cudnn_convolution_relu", "cudnn_convolution_add_relu"})
"""Convolutions as they are, and those that cuDNN fuses with what follows: what holds for one tells of the others."""


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
    return "gemm" if ops.lookup(anchor).flops is ops.matmul_flops else "aten"


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
        "log_bound_us": _log(bound),
        "log_traffic": _log(traffic),
        "log_flops": _log(flops),
        "log_intensity": _log(flops / max(1, traffic)),
        "log_written": _log(sum(graph.type_of(ref).nbytes for ref in graph.outputs)),
        "log_params": _log(sum(value.type.nbytes for value in graph.values if value.role == "param")),
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


def _log(value: float) -> float:
    return math.log2(value + 1.0)


def _operand(graph: Graph, op: Op, *names: str) -> TensorType:
    for name in names:
        ref = op.arg(name)
        if isinstance(ref, Ref):
            return graph.type_of(ref)
    return op.type


def _number(value: object, default: float = 0.0) -> float:
    if isinstance(value, tuple):
        value = value[0] if value else default
    return float(value) if isinstance(value, (int, float)) else default


def _odd(size: int) -> float:
    """How far rows of so many elements keep a kernel from loads of several at once: 0 for multiples of 8, 3 if odd."""
    return float(size % 8 != 0) + float(size % 4 != 0) + float(size % 2 != 0)


def _side(sizes: Sequence[int]) -> float:
    """The side of a square kernel of the same area; a wide one counts a little more than a tall one, to be told apart.

    A little, because only few families have kernels that are not square, and what a network has not seen it guesses.
    """
    height, width = sizes[0], sizes[-1]
    side: float = math.prod(sizes) ** (1 / len(sizes))
    return side * (1 + TILT * (width - height) / (width + height))


def _tiling(rows: int, columns: int, inner: int, batch: int, multiprocessors: int) -> dict[str, float]:
    """A product's dimensions and how its tiles of 128 x 128 and 64 x 64 fill the device."""
    named = {"log_m": _log(rows), "log_n": _log(columns), "log_k": _log(inner), "log_products": _log(batch)}
    for tile in (64, 128):
        waves = batch * math.ceil(rows / tile) * math.ceil(columns / tile) / multiprocessors
        named[f"log_waves_{tile}"] = math.log2(waves)
        named[f"wave_loss_{tile}"] = math.ceil(waves) / waves if waves > 1 else 1.0
    for name, size in (("n", columns), ("k", inner)):
        named[f"{name}_odd"] = _odd(size)
        named[f"{name}_by_32"] = float(size % 32 == 0)
    return named


def _conv_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    graph, op = kernel.graph, kernel.anchor
    source, weight = _operand(graph, op, "input", "self"), _operand(graph, op, "weight")
    groups = max(1, int(_number(op.arg("groups"), 1)))
    spatial = math.prod(op.type.shape[2:])
    inner = math.prod(weight.shape[1:])
    columns = op.type.shape[1] // groups
    kernel_sizes = weight.shape[2:] or (1,)
    kind = grouping(groups, weight.shape[1], columns)
    return {
        "log_weight_bytes": _log(weight.nbytes),
        "fused": float(op.base != "convolution"),
        "residual": float(op.base == "cudnn_convolution_add_relu"),
        "log_batch": _log(source.shape[0]),
        "log_in_channels": _log(source.shape[1]),
        "log_out_channels": _log(op.type.shape[1]),
        "log_in_pixels": _log(math.prod(source.shape[2:])),
        "log_out_pixels": _log(spatial),
        "kernel_size": _side(kernel_sizes),
        "oblong": float(kind == "depthwise" and kernel_sizes[0] != kernel_sizes[-1]),
        "pointwise": float(math.prod(kernel_sizes) == 1),
        "stride": _number(op.arg("stride"), 1),
        "padding": _number(op.arg("padding")),
        "dilation": _number(op.arg("dilation"), 1),
        "log_groups": _log(groups),
        "depthwise": float(kind in ("depthwise", "multiplied")),
        "grouped": float(kind in ("even", "uneven")),
        "uneven_groups": float(kind == "uneven"),
        "multiplied": float(kind == "multiplied"),
        "transposed": float(bool(op.arg("transposed"))),
        "bias": float(isinstance(op.arg("bias"), Ref)),
        "in_nhwc": float(source.layout == "nhwc"),
        "in_strided": float(source.layout == "strided"),
        "in_viewed": float(any(op.arg(name) == Ref(view.name) for view in graph.ops for name in ("input", "self"))),
        "out_nhwc": float(op.type.layout == "nhwc"),
        "weight_nhwc": float(weight.layout == "nhwc"),
        "dims": float(len(kernel_sizes)),
        "in_channels_odd": float(weight.shape[1] % 4 != 0) + float(weight.shape[1] % 8 != 0),
        "in_pixels_odd": _odd(math.prod(source.shape[2:])),
        "out_pixels_odd": _odd(spatial),
        **_tiling(source.shape[0] * spatial, columns, inner, groups, multiprocessors),
    }


def _gemm_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    graph, op = kernel.graph, kernel.anchor
    left = _operand(graph, op, "mat1", "batch1", "self", "input")
    right = _operand(graph, op, "mat2", "batch2", "vec2", "vec")
    if op.base in ("mm", "bmm"):
        left = _operand(graph, op, "self")
    rows, inner = left.shape[-2] if len(left.shape) > 1 else 1, left.shape[-1]
    batch = left.shape[0] if len(left.shape) == 3 else 1
    return {
        "batched": float(len(left.shape) == 3),
        "bias": float(op.base in ("addmm", "baddbmm")),
        "left_strided": float(left.layout == "strided"),
        "right_strided": float(right.layout == "strided"),
        "weights": float(any(value.role == "param" for value in graph.values)),
        "single_row": float(rows == 1),
        **_tiling(rows, op.type.shape[-1], inner, batch, multiprocessors),
    }


def _attention_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    graph, op = kernel.graph, kernel.anchor
    query, key = _operand(graph, op, "query"), _operand(graph, op, "key")
    heads = math.prod(query.shape[:-2])
    return {
        "log_heads": _log(heads),
        "log_queries": _log(query.shape[-2]),
        "log_keys": _log(key.shape[-2]),
        "log_head_size": _log(query.shape[-1]),
        "dims": float(len(query.shape)),
        "masked": float(isinstance(op.arg("attn_mask"), Ref)),
        "strided": float(query.layout == "strided"),
        "log_blocks": _log(heads * math.ceil(query.shape[-2] / 64) / multiprocessors),
    }


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


def _aten_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    graph, op = kernel.graph, kernel.anchor
    sources = [graph.type_of(ref) for ref in op.refs()]
    largest = max([op.type, *sources], key=lambda kind: kind.numel)
    row = ops.lookup(op)
    kind = "upsample" if "upsample" in op.base else row.kind
    named = {f"is_{one}": float(kind == one) for one in _ATEN_KINDS}
    return named | {
        "other_kind": float(kind not in _ATEN_KINDS),
        "inputs": float(len(sources)),
        "log_largest": _log(largest.numel),
        "log_out": _log(op.type.numel),
        "log_reduced": _log(largest.numel / max(1, op.type.numel)),
        "log_last": _log(largest.shape[-1] if largest.shape else 1),
        "log_rows": _log(math.prod(largest.shape[:2])),
        "log_pixels": _log(math.prod(largest.shape[2:])),
        "strided": float(any(kind.layout == "strided" for kind in sources)),
        "broadcast": float(any(1 < kind.numel < op.type.numel for kind in sources)),
        "log_window": _log(_window(op)),
        "work": float(row.work),
        "blocks": _log(largest.numel / 1024 / multiprocessors),
        "log_alone": _log(_one_by_one(op)),
        **_order(graph, op),
    }


def _one_by_one(op: Op) -> int:
    """Elements that PyTorch's kernel takes one after another, however much of the device is idle; 0 where it does not.

    A group norm gives each group to one block; a smooth upsampling gives each pixel of all images and channels to one
    thread, unless channels lie last (aten/src/ATen/native/cuda, group_norm_kernel.cu and UpSampleBilinear2d.cu).
    """
    shape = op.type.shape
    if op.base == "native_group_norm":
        return op.type.numel // max(1, int(_number(op.arg("N"), 1)) * int(_number(op.arg("group"), 1)))
    smooth = "upsample" in op.base and "nearest" not in op.base
    return math.prod(shape[:2]) if smooth and op.type.layout != "nhwc" else 0


def _order(graph: Graph, op: Op) -> dict[str, float]:
    """How far an elementwise operator's tensors agree on the order of their elements in memory."""
    walk = walk_of(graph, op)
    return {
        "log_run": _log(min(walk.run, LONG_RUN)),
        "mixed_order": float(walk.mixed),
        "log_hop": _log(walk.hop),
        "order_unknown": float(walk.unknown),
    }


def _window(op: Op) -> int:
    size = op.arg("kernel_size")
    return math.prod(item for item in size if isinstance(item, int)) if isinstance(size, tuple) else 0


def _triton_features(kernel: Kernel, multiprocessors: int) -> dict[str, float]:
    graph = kernel.graph
    computing = [op for op in graph.ops if ops.lookup(op).role is not Role.VIEW]
    views = [op for op in graph.ops if ops.lookup(op).role is Role.VIEW]
    reductions = [op for op in computing if ops.lookup(op).role is Role.REDUCTION]
    outputs = [graph.type_of(ref) for ref in graph.outputs]
    needed = needed_elements(graph)
    results = (Ref(op.name, index) for op in computing for index in range(len(op.types)))
    reduced = (ref for op in reductions for ref in op.refs())
    domain = max(needed.get(ref, 0.0) for ref in (*results, *reduced))
    outer = min((op.type.numel for op in reductions), default=domain)
    inputs = [value.type for value in graph.values]
    anchor = kernel.anchor
    first = graph.type_of(reductions[0].refs()[0]) if reductions else anchor.type
    return {
        "operators": float(len(computing)),
        "work": float(sum(ops.lookup(op).work for op in computing)),
        "inputs": float(len(inputs)),
        "large_inputs": float(sum(kind.numel * 4 > domain for kind in inputs)),
        "outputs": float(len(outputs)),
        "log_domain": _log(domain),
        "log_outer": _log(outer),
        "log_inner": _log(domain / max(1, outer)),
        "reductions": float(len(reductions)),
        "reduces_nhwc": float(bool(reductions) and first.layout == "nhwc"),
        "split": float(any(split_reduction(graph, op) for op in reductions)),
        "log_windows": _log(sum(_window(op) for op in computing)),
        "cats": float(sum(ops.lookup(op).role is Role.CONCAT for op in computing)),
        "cat_inputs": float(sum(len(op.refs()) for op in computing if ops.lookup(op).role is Role.CONCAT)),
        "copies": float(sum(op.base == "clone" for op in computing)),
        "to_nhwc": float(
            any(op.base == "clone" and op.arg("memory_format") == "torch.channels_last" for op in computing)
        ),
        "of_params": float(all(value.role == "param" for value in graph.values)),
        "shuffles": float(sum(op.base in ("permute", "transpose") for op in views)),
        "slices": float(
            sum(op.base in ("slice", "select", "split", "split_with_sizes", "unbind", "chunk") for op in views)
        ),
        "strided": float(any(kind.layout == "strided" for kind in inputs)),
        "indexing": float(
            any(op.base in ("index", "roll", "constant_pad_nd", "index_select", "gather") for op in computing)
        ),
        "transcendental": float(sum(ops.lookup(op).work >= 4 for op in computing)),
        "log_last": _log(anchor.type.shape[-1] if anchor.type.shape else 1),
        "log_channels": _log(anchor.type.shape[1] if len(anchor.type.shape) > 1 else 1),
        "blocks": _log(domain / 1024 / multiprocessors),
    }


_SPECIFIC: Mapping[str, Callable[[Kernel, int], dict[str, float]]] = {
    "conv": _conv_features,
    "gemm": _gemm_features,
    "attention": _attention_features,
    "aten": _aten_features,
    "triton": _triton_features,
}
GROUPS = tuple(_SPECIFIC)
