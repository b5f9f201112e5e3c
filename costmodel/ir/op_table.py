"""The rows of the operator table, one a line; `costmodel.ir.operators` looks them up.

A row made by `view`, `source`, `pointwise`, `reduction` or `window` says only what is not that role's default: `work`
(operations an element), `kind` (the name shown to users, else the operator's own), `uses`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

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
    """Changes no data: no kernel, only host time."""
    POINTWISE = "pointwise"
    """One value an output element, from inputs at computed places; fuses with neighbours."""
    REDUCTION = "reduction"
    """Many elements to one; fuses with what computes them and what uses them on the same domain."""
    WINDOW = "window"
    """Pooling: each output from a window of the input; its input is kept in memory, its output fuses."""
    CONCAT = "concat"
    """Joins tensors; a compiler may write its inputs in place."""
    JOINED = "joined"
    """A join whose inputs have been written into their places already."""
    EXTERN = "extern"
    """A library kernel (cuDNN, cuBLAS, attention): an anchor that nothing fuses into."""
    SOURCE = "source"
    """Makes a tensor of nothing; a compiler folds it away."""


Flops = Callable[[Graph, Op], int]


@dataclass(frozen=True, slots=True)
class Row:
    """What the table knows of one operator.

    `kind` is the name shown to users; `work` the arithmetic operations an element, used for FLOPs and by the fusion
    rules as a measure of how dear it is to compute a value twice. `uses` is how often a compiler's decomposition reads
    the input (`x * sigmoid(x)` twice).

    `saves` is what autograd keeps for the operator's backward pass, after torch's `derivatives.yaml`: arguments by name
    and results as `#index`, separated by spaces; `other:self` keeps `other` only where `self` needs a gradient. None
    means that nobody has said. `passes` tells that the gradient of the result, or a view of it, is that of the inputs:
    the backward pass allocates nothing. `random` results differ from call to call.
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


def row_of(role: Role, work: int, saves: str | None = None, passes: bool = False) -> Callable[..., Row]:
    """A constructor of rows of one role, with what they are unless they say otherwise."""

    def make(
        name: str,
        *,
        kind: str = "",
        work: int = work,
        uses: int = 1,
        saves: str | None = saves,
        passes: bool = passes,
        random: bool = False,
    ) -> Row:
        return Row(name, kind or name.lstrip("_"), role, work, None, uses, saves, passes, random)

    return make


view = row_of(Role.VIEW, 0, saves="", passes=True)
source = row_of(Role.SOURCE, 0, saves="")
pointwise = row_of(Role.POINTWISE, 1)
reduction = row_of(Role.REDUCTION, 1)
window = row_of(Role.WINDOW, 1)

ROWS: tuple[Row, ...] = (
    # No data moves.
    view("view"),
    view("_unsafe_view"),
    view("reshape"),
    view("t"),
    view("transpose"),
    view("permute"),
    view("expand"),
    view("unsqueeze"),
    view("squeeze"),
    view("select", passes=False),
    view("slice", passes=False),
    view("split", passes=False),
    view("split_with_sizes", passes=False),
    view("chunk", passes=False),
    view("unbind", passes=False),
    view("alias"),
    view("detach"),
    view("as_strided", passes=False),
    view("narrow", passes=False),
    view("unfold", passes=False),
    view("movedim"),
    view("swapaxes"),
    view("diagonal", passes=False),
    view("view_as_real"),
    view("view_as_complex"),
    view("lift_fresh"),
    view("unsafe_split", passes=False),
    view("unsafe_split_with_sizes", passes=False),
    view("unsafe_chunk", passes=False),
    view("expand_as"),
    view("view_as"),
    view("squeeze_"),
    view("unsqueeze_"),
    view("real"),
    view("imag"),
    # Tensors made of nothing, or of chance.
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
    # Arithmetic on several tensors.
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
    pointwise("relu", saves="#0"),
    pointwise("hardtanh", saves="self"),
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
    # Copies: elements of the result are elements of the inputs, elsewhere or of another type.
    pointwise("clone", kind="copy", work=0, saves="", passes=True),
    pointwise("_to_copy", kind="to", work=0, saves="", passes=True),
    pointwise("copy", work=0, saves="", passes=True),
    pointwise("constant_pad_nd", kind="pad", work=0, saves=""),
    pointwise("roll", work=0, saves=""),
    pointwise("flip", work=0, saves=""),
    pointwise("repeat", work=0, saves=""),
    pointwise("index", work=0, saves="indices"),
    pointwise("gather", work=0, saves="index"),
    pointwise("index_select", work=0, saves="index"),
    pointwise("pixel_shuffle", work=0, saves=""),
    pointwise("pixel_unshuffle", work=0, saves=""),
    pointwise("channel_shuffle", work=0, saves=""),
    pointwise("reflection_pad2d", work=0, saves="self"),
    pointwise("replication_pad2d", work=0, saves="self"),
    pointwise("tril", work=0, saves=""),
    pointwise("triu", work=0, saves=""),
    pointwise("contiguous", work=0, saves="", passes=True),
    pointwise("embedding", work=0, saves="indices"),
    pointwise("stack", work=0, saves=""),
    pointwise("im2col", work=0, saves=""),
    pointwise("lift_fresh_copy", work=0, saves="", passes=True),
    pointwise("repeat_interleave", work=0, saves=""),
    pointwise("slice_scatter", work=0, saves=""),
    pointwise("select_scatter", work=0, saves=""),
    pointwise("as_strided_scatter", work=0, saves=""),
    pointwise("masked_select", work=0, saves="mask self"),
    # Dear functions, with the operations an element that Inductor's decompositions make.
    pointwise("sigmoid", work=4, saves="#0"),
    pointwise("hardsigmoid", work=4, saves="self"),
    pointwise("hardswish", work=6, uses=2, saves="self"),
    pointwise("silu", work=5, uses=2, saves="self"),
    pointwise("gelu", work=9, uses=2, saves="self"),
    pointwise("tanh", work=5, saves="#0"),
    pointwise("exp", work=3, saves="#0"),
    pointwise("log", work=3, saves="self"),
    pointwise("log1p", work=3, saves="self"),
    pointwise("log2", work=3, saves="self"),
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
    # Batch norm in evaluation: a scale and a shift.
    pointwise("native_batch_norm", kind="batch_norm", work=5, saves="input weight running_mean running_var #1 #2"),
    pointwise(
        "_native_batch_norm_legit_no_training", kind="batch_norm", work=5, saves="input weight running_mean running_var"
    ),
    pointwise("cudnn_batch_norm", kind="batch_norm", work=5, saves="input weight running_mean running_var #1 #2"),
    # Joins.
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
)
