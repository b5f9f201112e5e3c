"""Rows of the operator table, one operator a line; `costmodel.ir.operators` looks them up.

A row made by `view`, `source`, `pointwise`, `reduction` or `window` names only the columns that differ from the
defaults of its role.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from costmodel.ir import Graph, Op
from costmodel.ir.flops import (
    attention_flops,
    convolution_flops,
    matmul_flops,
    multi_head_attention_flops,
    nms_flops,
    recurrent_flops,
    roi_align_flops,
)


class Role(StrEnum):
    """How an operator takes part in fusion."""

    VIEW = "view"
    """Changes no data: launches no kernel, costs host time only."""
    POINTWISE = "pointwise"
    """Computes each output element from inputs at known places; fuses with its neighbours."""
    REDUCTION = "reduction"
    """Reduces many elements to one; fuses with producers and users on the same domain."""
    WINDOW = "window"
    """Pooling: reads a window of the input for each output element; its input stays in memory, its output fuses."""
    CONCAT = "concat"
    """Concatenates tensors; a compiler may write the inputs in place."""
    JOINED = "joined"
    """Concatenates tensors that their producers have written in place already."""
    EXTERN = "extern"
    """Calls a library kernel (cuDNN, cuBLAS, attention): an anchor that nothing fuses into."""
    SOURCE = "source"
    """Makes a tensor from no other tensor; a compiler folds it away."""


class View(StrEnum):
    """How the elements of a view follow from the elements of the viewed tensor."""

    IDENTITY = "identity"
    """All elements, in the same shape."""
    RESHAPE = "reshape"
    """All elements in the same order, in another shape."""
    PERMUTE = "permute"
    """All elements, with dimensions exchanged."""
    NARROW = "narrow"
    """A range of indices along one dimension."""
    SELECT = "select"
    """One index along a dimension, which is dropped."""
    EXPAND = "expand"
    """Elements repeated along new dimensions or dimensions of size one."""
    OTHER = "other"
    """Any other view; no rule follows strides through it."""


Flops = Callable[[Graph, Op], int]


@dataclass(frozen=True, slots=True)
class Row:
    """Properties of one operator.

    Attributes:
        name: ATen name without the overload.
        kind: name shown to users.
        role: how it takes part in fusion.
        work: arithmetic operations an element, for FLOPs and for Inductor's limits on recomputing a value.
        flops: formula of the FLOPs of a library call.
        uses: how often Inductor's decomposition reads the input (`x * sigmoid(x)` twice).
        saves: tensors that autograd keeps for the backward pass, after torch's `derivatives.yaml`: arguments by name
            and results as `#index`, separated by spaces; `other:self` keeps `other` only where `self` needs a gradient.
            None is unknown.
        passes: whether the gradient of the result, or a view of it, is the gradient of the inputs: the backward pass
            allocates nothing.
        random: whether results differ from call to call.
        view: how a view shows its elements; None for an operator that is no view.
        supported: whether there is a cost rule. Reports name operators without one.
        realized_on_reuse: whether Inductor keeps the result in memory on a CPU if it is read twice
            (`StorageBox.should_realize_on_reuse`).
        fx_nodes: nodes that PyTorch's decompositions make of it, not counting its results.
        shifts: whether each element of the result is an element of the input at another place.
        indirect: whether it reads where a tensor of indices points.
        in_place: whether models call it as an activation in place and Inductor does not decompose it.
        by_strides: whether the result depends on the strides of the operand.
    """

    name: str
    kind: str
    role: Role
    work: int = 1
    flops: Flops | None = None
    uses: int = 1
    saves: str | None = None
    passes: bool = False
    random: bool = False
    view: View | None = None
    supported: bool = True
    realized_on_reuse: bool = False
    fx_nodes: int = 1
    shifts: bool = False
    indirect: bool = False
    in_place: bool = False
    by_strides: bool = False


def row_of(role: Role, **defaults: Any) -> Callable[..., Row]:
    """Constructor of rows of one role, with the defaults of their columns."""

    def make(name: str, **columns: Any) -> Row:
        return Row(name, **{"kind": name.lstrip("_"), "role": role, **defaults, **columns})

    return make


view = row_of(Role.VIEW, work=0, saves="", passes=True, view=View.OTHER)
source = row_of(Role.SOURCE, work=0, saves="")
pointwise = row_of(Role.POINTWISE)
reduction = row_of(Role.REDUCTION)
window = row_of(Role.WINDOW)
unsupported = row_of(Role.POINTWISE, supported=False)

ROWS: tuple[Row, ...] = (
    # Views.
    view("view", view=View.RESHAPE),
    view("_unsafe_view", view=View.RESHAPE),
    view("reshape", view=View.RESHAPE),
    view("t", view=View.PERMUTE),
    view("transpose", view=View.PERMUTE),
    view("permute", view=View.PERMUTE),
    view("expand", view=View.EXPAND),
    view("unsqueeze", view=View.RESHAPE),
    view("squeeze", view=View.RESHAPE),
    view("select", view=View.SELECT, passes=False),
    view("slice", view=View.NARROW, passes=False),
    view("split", view=View.NARROW, passes=False),
    view("split_with_sizes", view=View.NARROW, passes=False),
    view("chunk", view=View.NARROW, passes=False),
    view("unbind", view=View.SELECT, passes=False),
    view("alias", view=View.IDENTITY),
    view("detach", view=View.IDENTITY),
    view("as_strided", passes=False, by_strides=True),
    view("narrow", view=View.NARROW, passes=False),
    view("unfold", passes=False),
    view("movedim"),
    view("swapaxes", view=View.PERMUTE),
    view("diagonal", passes=False),
    view("view_as_real"),
    view("view_as_complex", by_strides=True),
    view("lift_fresh", view=View.IDENTITY),
    view("unsafe_split", passes=False),
    view("unsafe_split_with_sizes", passes=False),
    view("unsafe_chunk", passes=False),
    view("expand_as"),
    view("view_as"),
    view("squeeze_"),
    view("unsqueeze_"),
    view("real"),
    view("imag"),
    # Factories.
    pointwise("bernoulli", work=3, saves="", random=True),
    source("zeros"),
    source("ones"),
    source("full"),
    source("arange"),
    source("scalar_tensor"),
    source("new_zeros"),
    source("new_ones"),
    source("new_full"),
    source("zeros_like"),
    source("ones_like"),
    source("full_like"),
    source("eye"),
    source("empty"),
    source("linspace"),
    source("new_empty"),
    source("empty_like"),
    source("empty_strided"),
    # Arithmetic.
    pointwise("add", saves="", passes=True),
    pointwise("sub", saves="", passes=True),
    pointwise("mul", saves="self:other other:self"),
    pointwise("div", saves="self:other other"),
    pointwise("maximum", saves="self other"),
    pointwise("minimum", saves="self other"),
    pointwise("eq", saves=""),
    pointwise("ne", saves=""),
    pointwise("lt", saves=""),
    pointwise("le", saves=""),
    pointwise("gt", saves=""),
    pointwise("ge", saves=""),
    pointwise("bitwise_and", saves=""),
    pointwise("bitwise_or", saves=""),
    pointwise("bitwise_not", saves=""),
    pointwise("bitwise_xor", saves=""),
    pointwise("logical_and", saves=""),
    pointwise("logical_or", saves=""),
    pointwise("logical_not", saves=""),
    pointwise("where", saves="condition"),
    pointwise("masked_fill", saves="mask"),
    pointwise("fill", saves=""),
    pointwise("zero", saves=""),
    pointwise("remainder"),
    pointwise("floor_divide", saves=""),
    pointwise("lerp", saves="self end weight"),
    pointwise("addcmul", saves="tensor1 tensor2"),
    pointwise("addcdiv", saves="tensor1 tensor2"),
    pointwise("rsub", saves="", passes=True),
    pointwise("fmod", saves="self other"),
    pointwise("copysign"),
    # Cheap functions of one tensor.
    pointwise("relu", saves="#0", in_place=True),
    pointwise("hardtanh", saves="self", in_place=True),
    pointwise("clamp", saves="self"),
    pointwise("clamp_min", saves="self"),
    pointwise("clamp_max", saves="self"),
    pointwise("neg", saves=""),
    pointwise("abs", saves="self"),
    pointwise("floor", saves=""),
    pointwise("ceil", saves=""),
    pointwise("round", saves=""),
    pointwise("sign", saves=""),
    pointwise("leaky_relu", uses=2, saves="self"),
    pointwise("threshold", saves="self"),
    pointwise("relu6", saves="self"),
    pointwise("isnan", saves=""),
    pointwise("nan_to_num", work=6, saves="self"),
    pointwise("isin", work=2, saves=""),
    pointwise("reciprocal", saves="#0"),
    pointwise("rsqrt", saves="#0"),
    pointwise("sqrt", saves="#0"),
    pointwise("square", saves="self"),
    # Copies: the result has elements of the inputs, at other places or of another type.
    pointwise("clone", kind="copy", work=0, saves="", passes=True),
    pointwise("_to_copy", kind="to", work=0, saves="", passes=True),
    pointwise("copy", work=0, saves="", passes=True),
    pointwise("constant_pad_nd", kind="pad", work=0, saves=""),
    pointwise("roll", work=0, saves="", shifts=True),
    pointwise("flip", work=0, saves="", shifts=True),
    pointwise("repeat", work=0, saves=""),
    pointwise("index", work=0, saves="indices", indirect=True),
    pointwise("gather", work=0, saves="index", indirect=True),
    pointwise("index_select", work=0, saves="index", indirect=True),
    pointwise("pixel_shuffle", work=0, saves=""),
    pointwise("pixel_unshuffle", work=0, saves=""),
    pointwise("channel_shuffle", work=0, saves=""),
    pointwise("reflection_pad2d", work=0, saves="self"),
    pointwise("replication_pad2d", work=0, saves="self"),
    pointwise("tril", work=0, saves=""),
    pointwise("triu", work=0, saves=""),
    pointwise("contiguous", work=0, saves="", passes=True),
    pointwise("embedding", work=0, saves="indices", indirect=True),
    pointwise("stack", work=0, saves=""),
    pointwise("im2col", work=0, saves=""),
    pointwise("lift_fresh_copy", work=0, saves="", passes=True),
    pointwise("repeat_interleave", work=0, saves=""),
    pointwise("slice_scatter", work=0, saves=""),
    pointwise("select_scatter", work=0, saves=""),
    pointwise("as_strided_scatter", work=0, saves="", by_strides=True),
    pointwise("masked_select", work=0, saves="mask self"),
    # Costly functions; `work` counts the operations an element in Inductor's decompositions.
    pointwise("sigmoid", work=4, saves="#0", realized_on_reuse=True),
    pointwise("hardsigmoid", work=4, saves="self", fx_nodes=4),
    pointwise("hardswish", work=6, uses=2, saves="self", fx_nodes=5),
    pointwise("silu", work=5, uses=2, saves="self", realized_on_reuse=True, fx_nodes=4),
    pointwise("gelu", work=9, uses=2, saves="self", fx_nodes=5),
    pointwise("tanh", work=5, saves="#0", realized_on_reuse=True),
    pointwise("exp", work=3, saves="#0", realized_on_reuse=True),
    pointwise("log", work=3, saves="self", realized_on_reuse=True),
    pointwise("log1p", work=3, saves="self", realized_on_reuse=True),
    pointwise("log2", work=3, saves="self", realized_on_reuse=True),
    pointwise("expm1", work=3, saves="#0"),
    pointwise("erf", work=6, saves="self"),
    pointwise("sin", work=5, saves="self"),
    pointwise("cos", work=5, saves="self"),
    pointwise("atan2", work=8, saves="self other"),
    pointwise("pow", work=5, saves="self"),
    pointwise("mish", work=8, uses=2, saves="self"),
    pointwise("elu", work=5, uses=2, saves="self"),
    pointwise("softplus", work=6, uses=2, saves="self"),
    pointwise("celu", work=5, uses=2, saves="self"),
    pointwise("selu", work=5, uses=2, saves="self"),
    pointwise("prelu", work=3, uses=2, saves="self weight"),
    pointwise("_prelu_kernel", work=3, uses=2, saves="self weight"),
    pointwise("log_sigmoid_forward", work=6, saves="self #1"),
    pointwise("logit", work=5, saves="self"),
    pointwise("special_expm1", work=3, saves="#0"),
    pointwise("native_dropout", saves="#1", random=True),
    pointwise("grid_sampler_2d", work=40, saves="input grid"),
    pointwise("upsample_nearest2d", work=3, saves=""),
    pointwise("upsample_bilinear2d", work=20, saves=""),
    pointwise("upsample_bicubic2d", work=60, saves=""),
    pointwise("_upsample_bicubic2d_aa", work=60, saves=""),
    pointwise("_upsample_bilinear2d_aa", work=20, saves=""),
    pointwise("_upsample_nearest_exact2d", work=3, saves=""),
    pointwise("upsample_trilinear3d", work=40, saves=""),
    pointwise("upsample_linear1d", work=10, saves=""),
    pointwise("col2im", work=4, saves=""),
    pointwise("index_put", work=2, saves="indices"),
    pointwise("scatter", work=2, saves="index"),
    pointwise("scatter_add", work=2, saves="index"),
    # Reductions.
    reduction("mean", saves=""),
    reduction("sum", saves=""),
    reduction("amax", saves="self #0"),
    reduction("amin", saves="self #0"),
    reduction("max", saves="#1"),
    reduction("min", saves="#1"),
    reduction("argmax", saves=""),
    reduction("argmin", saves=""),
    reduction("prod", saves="self #0"),
    reduction("var", work=3, saves="self"),
    reduction("std", work=3, saves="self"),
    reduction("var_mean", work=3, saves="self #1"),
    reduction("std_mean", work=3, saves="self #1"),
    reduction("linalg_vector_norm", work=2, saves="self #0"),
    reduction("norm", work=2, saves="self #0"),
    reduction("native_layer_norm", kind="layer_norm", work=8, saves="input weight #1 #2"),
    reduction("native_group_norm", kind="group_norm", work=8, saves="input weight #1 #2"),
    reduction("_fused_rms_norm", work=6, saves="input weight #1"),
    reduction("rms_norm", work=6),
    reduction("_softmax", work=6, saves="#0"),
    reduction("_safe_softmax", kind="softmax", work=8, saves="#0"),
    reduction("_log_softmax", work=6, saves="#0"),
    reduction("cumsum", work=2, saves=""),
    reduction("cummax", work=2, saves="#1"),
    reduction("cummin", work=2, saves="#1"),
    reduction("all", saves=""),
    reduction("any", saves=""),
    reduction("topk", work=10, saves="#1"),
    reduction("sort", work=20, saves="#1"),
    reduction("_adaptive_avg_pool2d", saves="self"),
    reduction("_adaptive_avg_pool3d", saves="self"),
    reduction("logsumexp", work=4, saves="self #0"),
    reduction("nonzero", work=4, saves=""),
    # Pooling.
    window("max_pool2d_with_indices", kind="max_pool2d", saves="self #1"),
    window("max_pool3d_with_indices", saves="self #1"),
    window("avg_pool2d", saves="self"),
    window("avg_pool3d", saves="self"),
    window("avg_pool1d", saves="self"),
    window("adaptive_max_pool2d", saves="self #1"),
    window("adaptive_max_pool3d", saves="self #1"),
    window("max_pool2d"),
    # Batch norm in evaluation mode: a scale and a shift.
    pointwise(
        "native_batch_norm",
        kind="batch_norm",
        work=5,
        saves="input weight running_mean running_var #1 #2",
        fx_nodes=12,
    ),
    pointwise(
        "_native_batch_norm_legit_no_training", kind="batch_norm", work=5, saves="input weight running_mean running_var"
    ),
    pointwise("cudnn_batch_norm", kind="batch_norm", work=5, saves="input weight running_mean running_var #1 #2"),
    # Concatenation.
    Row("cat", "cat", Role.CONCAT, work=0, saves="", passes=True),
    Row("concat_in_place", "cat", Role.JOINED, work=0),
    # Library calls.
    Row("convolution", "conv2d", Role.EXTERN, flops=convolution_flops, saves="input weight"),
    Row("cudnn_convolution_relu", "conv2d", Role.EXTERN, flops=convolution_flops),
    Row("cudnn_convolution_add_relu", "conv2d", Role.EXTERN, flops=convolution_flops),
    Row("addmm", "linear", Role.EXTERN, flops=matmul_flops, saves="mat1:mat2 mat2:mat1"),
    Row("mm", "linear", Role.EXTERN, flops=matmul_flops, saves="self:mat2 mat2:self"),
    Row("bmm", "matmul", Role.EXTERN, flops=matmul_flops, saves="self:mat2 mat2:self"),
    Row("baddbmm", "matmul", Role.EXTERN, flops=matmul_flops, saves="batch1 batch2"),
    Row("mv", "matmul", Role.EXTERN, flops=matmul_flops, saves="self vec"),
    Row("addmv", "matmul", Role.EXTERN, flops=matmul_flops, saves="mat vec"),
    Row("dot", "matmul", Role.EXTERN, flops=matmul_flops, saves="self tensor"),
    Row("vdot", "matmul", Role.EXTERN, flops=matmul_flops, saves="self other"),
    Row(
        "scaled_dot_product_attention",
        "attention",
        Role.EXTERN,
        flops=attention_flops,
        saves="query key value attn_mask #0",
    ),
    Row("_native_multi_head_attention", "attention", Role.EXTERN, flops=multi_head_attention_flops),
    Row("lstm", "lstm", Role.EXTERN, flops=recurrent_flops),
    Row("gru", "gru", Role.EXTERN, flops=recurrent_flops),
    Row("torchvision_nms", "nms", Role.EXTERN, flops=nms_flops),
    Row("torchvision_roi_align", "roi_align", Role.EXTERN, flops=roi_align_flops),
    # Operators without a cost rule, whose properties matter elsewhere.
    unsupported("as_strided_copy", by_strides=True),
    unsupported("log10", realized_on_reuse=True),
    unsupported("exponential", random=True),
    unsupported("multinomial", random=True),
    unsupported("normal", random=True),
    unsupported("rand", random=True),
    unsupported("rand_like", random=True),
    unsupported("randint", random=True),
    unsupported("randint_like", random=True),
    unsupported("randn", random=True),
    unsupported("randn_like", random=True),
    unsupported("randperm", random=True),
    unsupported("rrelu_with_noise", random=True),
    unsupported("uniform", random=True),
)
