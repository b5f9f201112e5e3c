"""The rows of the operator table, one a line; `costmodel.ops` looks them up.

A row made by `view`, `source`, `pointwise`, `reduction` or `window` says only what is not that role's default: `work`
(operations an element), `kind` (the name shown to users, else the operator's own), `uses`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from costmodel.flops import attention_flops, convolution_flops, matmul_flops
from costmodel.ir import Graph, Op


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
    """

    name: str
    kind: str
    role: Role
    work: int = 1
    flops: Flops | None = None
    uses: int = 1


def row_of(role: Role, work: int) -> Callable[..., Row]:
    """A constructor of rows of one role, which do `work` operations an element unless they say otherwise."""

    def make(name: str, *, kind: str = "", work: int = work, uses: int = 1) -> Row:
        return Row(name, kind or name.lstrip("_"), role, work, uses=uses)

    return make


view = row_of(Role.VIEW, 0)
source = row_of(Role.SOURCE, 0)
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
    view("select"),
    view("slice"),
    view("split"),
    view("split_with_sizes"),
    view("chunk"),
    view("unbind"),
    view("alias"),
    view("detach"),
    view("as_strided"),
    view("narrow"),
    view("unfold"),
    view("movedim"),
    view("swapaxes"),
    view("diagonal"),
    view("view_as_real"),
    view("view_as_complex"),
    view("lift_fresh"),
    view("unsafe_split"),
    view("unsafe_split_with_sizes"),
    view("unsafe_chunk"),
    view("expand_as"),
    view("view_as"),
    view("squeeze_"),
    view("unsqueeze_"),
    view("real"),
    view("imag"),
    # Tensors made of nothing.
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
    pointwise("add"),
    pointwise("sub"),
    pointwise("mul"),
    pointwise("div"),
    pointwise("maximum"),
    pointwise("minimum"),
    pointwise("eq"),
    pointwise("ne"),
    pointwise("lt"),
    pointwise("le"),
    pointwise("gt"),
    pointwise("ge"),
    pointwise("bitwise_and"),
    pointwise("bitwise_or"),
    pointwise("bitwise_not"),
    pointwise("bitwise_xor"),
    pointwise("logical_and"),
    pointwise("logical_or"),
    pointwise("logical_not"),
    pointwise("where"),
    pointwise("masked_fill"),
    pointwise("fill"),
    pointwise("zero"),
    pointwise("remainder"),
    pointwise("floor_divide"),
    pointwise("lerp"),
    pointwise("addcmul"),
    pointwise("addcdiv"),
    pointwise("rsub"),
    pointwise("fmod"),
    pointwise("copysign"),
    # Cheap functions of one tensor.
    pointwise("relu"),
    pointwise("hardtanh"),
    pointwise("clamp"),
    pointwise("clamp_min"),
    pointwise("clamp_max"),
    pointwise("neg"),
    pointwise("abs"),
    pointwise("floor"),
    pointwise("ceil"),
    pointwise("round"),
    pointwise("sign"),
    pointwise("leaky_relu", uses=2),
    pointwise("threshold"),
    pointwise("relu6"),
    pointwise("isnan"),
    pointwise("reciprocal"),
    pointwise("rsqrt"),
    pointwise("sqrt"),
    pointwise("square"),
    # Copies: elements of the result are elements of the inputs, elsewhere or of another type.
    pointwise("clone", kind="copy", work=0),
    pointwise("_to_copy", kind="to", work=0),
    pointwise("copy", work=0),
    pointwise("constant_pad_nd", kind="pad", work=0),
    pointwise("roll", work=0),
    pointwise("flip", work=0),
    pointwise("repeat", work=0),
    pointwise("index", work=0),
    pointwise("gather", work=0),
    pointwise("index_select", work=0),
    pointwise("pixel_shuffle", work=0),
    pointwise("pixel_unshuffle", work=0),
    pointwise("channel_shuffle", work=0),
    pointwise("reflection_pad2d", work=0),
    pointwise("replication_pad2d", work=0),
    pointwise("tril", work=0),
    pointwise("triu", work=0),
    pointwise("contiguous", work=0),
    pointwise("embedding", work=0),
    pointwise("stack", work=0),
    pointwise("im2col", work=0),
    pointwise("lift_fresh_copy", work=0),
    pointwise("repeat_interleave", work=0),
    pointwise("slice_scatter", work=0),
    pointwise("select_scatter", work=0),
    pointwise("as_strided_scatter", work=0),
    pointwise("masked_select", work=0),
    # Dear functions, with the operations an element that Inductor's decompositions make.
    pointwise("sigmoid", work=4),
    pointwise("hardsigmoid", work=4),
    pointwise("hardswish", work=6, uses=2),
    pointwise("silu", work=5, uses=2),
    pointwise("gelu", work=9, uses=2),
    pointwise("tanh", work=5),
    pointwise("exp", work=3),
    pointwise("log", work=3),
    pointwise("log1p", work=3),
    pointwise("expm1", work=3),
    pointwise("erf", work=6),
    pointwise("sin", work=5),
    pointwise("cos", work=5),
    pointwise("atan2", work=8),
    pointwise("pow", work=5),
    pointwise("mish", work=8, uses=2),
    pointwise("elu", work=5, uses=2),
    pointwise("softplus", work=6, uses=2),
    pointwise("celu", work=5, uses=2),
    pointwise("selu", work=5, uses=2),
    pointwise("prelu", work=3, uses=2),
    pointwise("_prelu_kernel", work=3, uses=2),
    pointwise("log_sigmoid_forward", work=6),
    pointwise("logit", work=5),
    pointwise("special_expm1", work=3),
    pointwise("native_dropout"),
    pointwise("grid_sampler_2d", work=40),
    pointwise("upsample_nearest2d", work=3),
    pointwise("upsample_bilinear2d", work=20),
    pointwise("upsample_bicubic2d", work=60),
    pointwise("_upsample_bicubic2d_aa", work=60),
    pointwise("_upsample_bilinear2d_aa", work=20),
    pointwise("_upsample_nearest_exact2d", work=3),
    pointwise("upsample_trilinear3d", work=40),
    pointwise("upsample_linear1d", work=10),
    pointwise("col2im", work=4),
    pointwise("index_put", work=2),
    pointwise("scatter", work=2),
    pointwise("scatter_add", work=2),
    # Reductions.
    reduction("mean"),
    reduction("sum"),
    reduction("amax"),
    reduction("amin"),
    reduction("max"),
    reduction("min"),
    reduction("argmax"),
    reduction("argmin"),
    reduction("prod"),
    reduction("var", work=3),
    reduction("std", work=3),
    reduction("var_mean", work=3),
    reduction("std_mean", work=3),
    reduction("linalg_vector_norm", work=2),
    reduction("norm", work=2),
    reduction("native_layer_norm", kind="layer_norm", work=8),
    reduction("native_group_norm", kind="group_norm", work=8),
    reduction("_fused_rms_norm", work=6),
    reduction("rms_norm", work=6),
    reduction("_softmax", work=6),
    reduction("_safe_softmax", kind="softmax", work=8),
    reduction("_log_softmax", work=6),
    reduction("cumsum", work=2),
    reduction("all"),
    reduction("any"),
    reduction("topk", work=10),
    reduction("sort", work=20),
    reduction("_adaptive_avg_pool2d"),
    reduction("_adaptive_avg_pool3d"),
    reduction("logsumexp", work=4),
    reduction("nonzero", work=4),
    # Pooling.
    window("max_pool2d_with_indices", kind="max_pool2d"),
    window("max_pool3d_with_indices"),
    window("avg_pool2d"),
    window("avg_pool3d"),
    window("avg_pool1d"),
    window("adaptive_max_pool2d"),
    window("adaptive_max_pool3d"),
    window("max_pool2d"),
    # Batch norm in evaluation: a scale and a shift.
    pointwise("native_batch_norm", kind="batch_norm", work=5),
    pointwise("_native_batch_norm_legit_no_training", kind="batch_norm", work=5),
    pointwise("cudnn_batch_norm", kind="batch_norm", work=5),
    # Joins.
    Row("cat", "cat", Role.CONCAT, work=0),
    Row("concat_in_place", "cat", Role.JOINED, work=0),
    # Library calls.
    Row("convolution", "conv2d", Role.EXTERN, flops=convolution_flops),
    Row("cudnn_convolution_relu", "conv2d", Role.EXTERN, flops=convolution_flops),
    Row("cudnn_convolution_add_relu", "conv2d", Role.EXTERN, flops=convolution_flops),
    Row("addmm", "linear", Role.EXTERN, flops=matmul_flops),
    Row("mm", "linear", Role.EXTERN, flops=matmul_flops),
    Row("bmm", "matmul", Role.EXTERN, flops=matmul_flops),
    Row("baddbmm", "matmul", Role.EXTERN, flops=matmul_flops),
    Row("mv", "matmul", Role.EXTERN, flops=matmul_flops),
    Row("addmv", "matmul", Role.EXTERN, flops=matmul_flops),
    Row("dot", "matmul", Role.EXTERN, flops=matmul_flops),
    Row("scaled_dot_product_attention", "attention", Role.EXTERN, flops=attention_flops),
)
