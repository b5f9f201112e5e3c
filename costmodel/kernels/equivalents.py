"""Kernels that take about as long as kernels of a backward pass, for predictors that have measured none of these.

The gradient of a convolution by its input is a convolution of the incoming gradient, with the filter's channels
exchanged; that by weight does as much arithmetic as the forward pass, on the same tensors. Other kernels have an equal
of the same traffic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from costmodel.ir import Arg, Graph, Op, Ref, TensorType, Value
from costmodel.ir.flops import tensor_of
from costmodel.ir.training_costs import gradients_of
from costmodel.kernels.kernel import Kernel

INPUT_FACTOR, WEIGHT_FACTOR = 1.08, 1.33
"""Time of a convolution's gradient by input and by weight over that of a convolution of as much arithmetic.

Medians over 457 gradients on an H200. The tiles of a gradient by weight are as few as the filter is small, and each
sums over all pixels of all images."""
DEPTHWISE_FACTORS = (1.33, 2.05)
"""The same of depthwise convolutions, over 101 gradients."""
STRIDED_FACTOR = 1.5
"""The same by input of a convolution with a stride, over 42 gradients: it writes more pixels than it reads, many of
them zeros.

Of a depthwise convolution each written pixel takes as long as one that the forward pass writes (13 gradients: 4.3 times
the forward pass with a stride of 2, which is 4 times the pixels)."""
ATTENTION_FACTOR = 3.0
"""Time of attention's backward pass over its forward pass: 2.5 times the arithmetic, at less of the peak (Dao,
"FlashAttention-2", 2023)."""
POINTWISE = frozenset({
    "threshold_backward", "gelu_backward", "silu_backward", "hardswish_backward", "hardsigmoid_backward",
    "hardtanh_backward", "sigmoid_backward", "tanh_backward", "elu_backward", "leaky_relu_backward",
    "mish_backward", "native_dropout_backward",
})  # fmt: skip
"""Gradients of activations, which move what a product of two tensors moves."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A forward kernel, and the factor by which a kernel of a backward pass takes longer."""

    kernel: Kernel
    factor: float


def equivalent(kernel: Kernel) -> Equivalent | None:
    """Equivalent of a kernel of a backward pass among kernels of forward passes; None if there is none."""
    op = kernel.anchor
    if op.base == "convolution_backward" and any(gradients_of(op)[:2]) and not op.arg("transposed"):
        return _convolution(kernel, op)
    if "scaled_dot_product" in op.base and op.base.endswith("_backward"):
        return _attention(kernel, op)
    if op.base in POINTWISE and len(op.refs()) >= 2:
        return _product(kernel, op)
    return None


def _convolution(kernel: Kernel, op: Op) -> Equivalent:
    graph = kernel.graph
    source, weight, gradient = (tensor_of(graph, op, name) for name in ("input", "weight", "grad_output"))
    strides = op.arg("stride")
    unit = all(step == 1 for step in strides) if isinstance(strides, tuple) else strides == 1
    groups = op.arg("groups", 1)
    layout = "nhwc" if "nhwc" in (source.layout, gradient.layout) else "nchw"
    if gradients_of(op)[0] and unit and groups == 1:
        turned = (weight.shape[1], weight.shape[0], *weight.shape[2:])
        made = _called(op, gradient, TensorType(weight.dtype, turned, weight.layout), source, layout)
        return Equivalent(replace(kernel, graph=made), INPUT_FACTOR)
    made = _called(op, source, weight, gradient, layout)
    by_input, by_weight = (INPUT_FACTOR, WEIGHT_FACTOR) if groups == 1 else DEPTHWISE_FACTORS
    if not unit:
        more = math.prod(source.shape[2:]) / math.prod(gradient.shape[2:])
        by_input = INPUT_FACTOR * more if groups == source.shape[1] else STRIDED_FACTOR
    return Equivalent(replace(kernel, graph=made), by_input if gradients_of(op)[0] else by_weight)


def _called(op: Op, source: TensorType, weight: TensorType, result: TensorType, layout: str) -> Graph:
    """Graph of one forward convolution, as extraction writes it."""
    kept = {key: op.arg(key) for key in ("stride", "padding", "dilation", "transposed", "output_padding", "groups")}
    args: dict[str, Arg] = {"input": Ref("a0"), "weight": Ref("p0"), "bias": None, **kept}
    values = Value("a0", source.with_layout(layout)), Value("p0", weight.with_layout(layout), "param")
    call = Op("0", "convolution", tuple(args.items()), (result.with_layout(layout),))
    return Graph("", values, (call,), (Ref("0"),))


def _attention(kernel: Kernel, op: Op) -> Equivalent:
    graph = kernel.graph
    kinds = [tensor_of(graph, op, name) for name in ("query", "key", "value")]
    args: dict[str, Arg] = {name: Ref(f"a{place}") for place, name in enumerate(("query", "key", "value"))}
    args |= {"attn_mask": None, "dropout_p": 0.0, "is_causal": op.arg("is_causal", False)}
    values = tuple(Value(f"a{place}", kind) for place, kind in enumerate(kinds))
    result = TensorType(kinds[0].dtype, (*kinds[0].shape[:-1], kinds[2].shape[-1]), kinds[0].layout)
    call = Op("0", "scaled_dot_product_attention", tuple(args.items()), (result,))
    return Equivalent(replace(kernel, graph=Graph("", values, (call,), (Ref("0"),))), ATTENTION_FACTOR)


def _product(kernel: Kernel, op: Op) -> Equivalent:
    kinds = [kernel.graph.type_of(ref) for ref in op.refs()[:2]]
    values = tuple(Value(f"a{place}", kind) for place, kind in enumerate(kinds))
    call = Op("0", "mul.Tensor", (("self", Ref("a0")), ("other", Ref("a1"))), (op.type,))
    return Equivalent(replace(kernel, graph=Graph("", values, (call,), (Ref("0"),))), 1.0)
