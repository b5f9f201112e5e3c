"""Rows of operators that few vision models call; the others are in `costmodel.ir.op_table`.

Roles follow `torch._inductor.lowering` and `torch._inductor.decomposition` of torch 2.11 to 2.13: `library` rows are
operators that Inductor leaves to ATen (fallbacks), the others become Triton kernels. Whether some operators fall back
depends on their shapes: `costmodel.inductor.fallbacks`. Kernels of these operators are predicted by groups of their own
(`costmodel.features`).
"""

from __future__ import annotations

from costmodel.ir.op_row import Role, Row, View, row_of
from costmodel.ir.rare_costs import (
    deform_conv_flops,
    deform_conv_scratch,
    distance_flops,
    fft_flops,
    fft_scratch,
    nms_flops,
    roi_align_flops,
    sort_flops,
)

view = row_of(Role.VIEW, work=0, saves="", passes=True, view=View.OTHER)
pointwise = row_of(Role.POINTWISE, rare=True)
copy = row_of(Role.POINTWISE, rare=True, work=0)
function = row_of(Role.POINTWISE)
scatter = row_of(Role.POINTWISE, rare=True, work=2, scatters=True)
reduction = row_of(Role.REDUCTION, rare=True)
window = row_of(Role.WINDOW, rare=True)
library = row_of(Role.EXTERN, rare=True)

RARE_ROWS: tuple[Row, ...] = (
    # Fourier transforms and complex numbers; every operator on complex tensors is left to ATen.
    library("_fft_r2c", flops=fft_flops, scratch=fft_scratch, saves=""),
    library("_fft_c2c", flops=fft_flops, scratch=fft_scratch, saves=""),
    library("_fft_c2r", flops=fft_flops, scratch=fft_scratch, saves=""),
    library("complex", work=0, saves=""),
    library("polar", work=10, saves="abs angle"),
    pointwise("angle", work=8, saves="self"),
    view("_conj"),
    view("_neg_view"),
    # Sampling. `work` counts the operations an element in Inductor's decompositions.
    pointwise("affine_grid_generator", kind="affine_grid", work=34, saves=""),
    pointwise("grid_sampler_2d", work=100, uses=2, saves="input grid"),
    library("cudnn_grid_sampler", kind="grid_sampler_2d", work=100, saves="self grid", measured=False),
    library("grid_sampler_3d", work=60, saves="input grid"),
    pointwise("upsample_nearest1d", work=3, saves=""),
    pointwise("upsample_nearest3d", work=3, saves=""),
    pointwise("_upsample_nearest_exact1d", work=3, saves=""),
    pointwise("_upsample_nearest_exact3d", work=3, saves=""),
    pointwise("upsample_linear1d", work=10, saves=""),
    pointwise("upsample_trilinear3d", work=40, saves=""),
    pointwise("upsample_bicubic2d", work=60, saves=""),
    library("_upsample_bilinear2d_aa", work=20, saves=""),
    library("_upsample_bicubic2d_aa", work=60, saves=""),
    copy("im2col", saves=""),
    scatter("col2im", work=4, saves=""),
    copy("reflection_pad1d", saves="self"),
    copy("reflection_pad3d", saves="self"),
    copy("replication_pad1d", saves="self"),
    copy("replication_pad3d", saves="self"),
    # Detection.
    library("torchvision_deform_conv2d", kind="deform_conv2d", flops=deform_conv_flops, scratch=deform_conv_scratch),
    library("torchvision_nms", kind="nms", flops=nms_flops),
    library("torchvision_roi_align", kind="roi_align", flops=roi_align_flops),
    library("torchvision_roi_pool", kind="roi_pool", work=4),
    library("torchvision_ps_roi_align", kind="ps_roi_align", flops=roi_align_flops),
    library("torchvision_ps_roi_pool", kind="ps_roi_pool", work=4),
    # Reads and writes at indices.
    copy("gather", saves="index", indirect=True),
    copy("take", saves="index", indirect=True),
    library("masked_select", work=0, saves="mask self"),
    scatter("scatter", saves="index"),
    scatter("scatter_add", saves="index"),
    scatter("scatter_reduce", saves="index"),
    scatter("index_put", saves="indices"),
    scatter("index_add", saves="index"),
    scatter("index_copy", saves="index"),
    scatter("index_fill", saves="index"),
    scatter("max_unpool2d", saves="indices"),
    scatter("max_unpool3d", saves="indices"),
    library("masked_scatter", work=4, saves="mask"),
    library("_embedding_bag", work=2, saves="weight indices"),
    library("_embedding_bag_forward_only", kind="embedding_bag", work=2),
    pointwise("searchsorted", work=20, saves=""),
    pointwise("bucketize", work=20, saves=""),
    # Sorting and scans.
    reduction("sort", flops=sort_flops, saves="#1"),
    library("topk", work=10, saves="#1"),
    library("kthvalue", work=10, saves="#1"),
    library("median", work=10, saves="#1"),
    library("mode", flops=sort_flops, saves="#1"),
    reduction("cumsum", work=2, saves=""),
    reduction("cumprod", work=2, saves="self #0"),
    reduction("logcumsumexp", work=8, saves="self #0"),
    reduction("cummax", work=2, saves="#1"),
    reduction("cummin", work=2, saves="#1"),
    library("nonzero", work=4, saves=""),
    library("_unique2", work=40, saves=""),
    library("bincount", work=4, saves=""),
    library("histc", work=4, saves=""),
    # Pooling in three dimensions, or by sizes of the result.
    window("max_pool3d_with_indices", kind="max_pool3d", saves="self #1"),
    window("avg_pool3d", saves="self"),
    window("adaptive_max_pool2d", saves="self #1"),
    library("adaptive_max_pool3d", saves="self #1"),
    library("_adaptive_avg_pool3d", saves="self"),
    # Recurrent cells: whole, and the kernel for the gates on a GPU.
    library("lstm_cell", work=20),
    library("gru_cell", work=20),
    library("_thnn_fused_lstm_cell", kind="lstm_cell", work=20, measured=False),
    library("_thnn_fused_gru_cell", kind="gru_cell", work=20, measured=False),
    # Weights, distances, linear algebra.
    reduction("_weight_norm_interface", kind="weight_norm", work=4, saves="v g #1"),
    library("_cdist_forward", kind="cdist", flops=distance_flops, saves="x1 x2 #0"),
    # Functions of one or two tensors, which fuse as any other.
    function("log10", work=3, saves="self", realized_on_reuse=True),
    function("glu", work=5, uses=2, saves="self"),
    function("hypot", work=4, saves="self other #0"),
    function("erfc", work=6, saves="self"),
    function("erfinv", work=12, saves="#0"),
    function("rad2deg", saves=""),
    function("deg2rad", saves=""),
    function("exp2", work=3, saves="#0"),
    function("tan", work=6, saves="#0"),
    function("asin", work=6, saves="self"),
    function("acos", work=6, saves="self"),
    function("atan", work=6, saves="self"),
    function("sinh", work=5, saves="self"),
    function("cosh", work=5, saves="self"),
    function("trunc", saves=""),
    function("frac", work=2, saves=""),
    function("sgn", saves=""),
    function("signbit", saves=""),
    function("isinf", saves=""),
    function("isfinite", saves=""),
    function("fmax", saves="self other"),
    function("fmin", saves="self other"),
    function("softshrink", work=4, saves="self"),
    function("hardshrink", work=3, saves="self"),
    function("logaddexp", work=8, saves="self other"),
    function("xlogy", work=5, saves="self other"),
    function("heaviside", saves=""),
    function("rot90", work=0, saves=""),
    function("diag_embed", work=0, saves=""),
)
"""Rows of rare operators, one operator a line, and of functions that no measured model calls."""
