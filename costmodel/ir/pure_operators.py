"""Pure operators: functions of tensors and numbers only, without files, device state or other libraries.

The list is closed and names each overload, so that operators that torch or a package adds later are not on it. An
exported program may call only these operators. Capture runs operators of `COMPUTED` on the CPU for constants.
"""

from __future__ import annotations


def _aten(names: str) -> frozenset[str]:
    return frozenset(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names.split())


FACTORIES = _aten(
    """
    arange arange.start arange.start_step bartlett_window bartlett_window.periodic blackman_window
    blackman_window.periodic empty.memory_format empty_like empty_permuted empty_strided eye eye.m fft_fftfreq
    fft_rfftfreq full full_like hamming_window hamming_window.periodic hamming_window.periodic_alpha
    hamming_window.periodic_alpha_beta hann_window hann_window.periodic kaiser_window kaiser_window.beta
    kaiser_window.periodic lift_fresh lift_fresh_copy linspace linspace.Scalar_Tensor linspace.Tensor_Scalar
    linspace.Tensor_Tensor logspace logspace.Scalar_Tensor logspace.Tensor_Scalar logspace.Tensor_Tensor new_empty
    new_empty_strided new_full new_ones new_zeros ones ones_like range range.step scalar_tensor tril_indices
    triu_indices zeros zeros_like
    """
)
"""Factories: tensors from numbers."""

VIEWS = _aten(
    """
    _conj _reshape_alias _reshape_copy _unsafe_view adjoint alias alias_copy as_strided as_strided_copy atleast_1d
    atleast_1d.Sequence atleast_2d atleast_2d.Sequence atleast_3d atleast_3d.Sequence broadcast_tensors broadcast_to
    chunk conj contiguous detach detach_copy diagonal diagonal_copy dsplit.array dsplit.int expand expand_as
    expand_copy flatten.using_ints hsplit.array hsplit.int imag mH mT matrix_H moveaxis.int moveaxis.intlist
    movedim.int movedim.intlist narrow narrow.Tensor narrow_copy numpy_T permute permute_copy positive ravel real
    reshape reshape_as resolve_conj resolve_neg select.int select_copy.int slice.Tensor slice_copy.Tensor
    split.Tensor split.sizes split_copy.Tensor split_with_sizes split_with_sizes_copy squeeze squeeze.dim
    squeeze.dims squeeze_copy squeeze_copy.dim squeeze_copy.dims swapaxes swapdims t t_copy tensor_split.indices
    tensor_split.sections tensor_split.tensor_indices_or_sections transpose.int transpose_copy.int unbind.int
    unbind_copy.int unflatten.int unfold unfold_copy unsafe_chunk unsafe_split.Tensor unsafe_split_with_sizes
    unsqueeze unsqueeze_copy view view.dtype view_as view_as_complex view_as_complex_copy view_as_real
    view_as_real_copy view_copy view_copy.dtype vsplit.array vsplit.int
    """
)
"""Views and their copying variants: other shapes of the same elements."""

POINTWISE = _aten(
    """
    __and__.Scalar __and__.Tensor __lshift__.Scalar __lshift__.Tensor __or__.Scalar __or__.Tensor __rshift__.Scalar
    __rshift__.Tensor __xor__.Scalar __xor__.Tensor _native_batch_norm_legit_no_training _prelu_kernel _safe_softmax
    _to_copy _upsample_bicubic2d_aa _upsample_bicubic2d_aa.vec _upsample_bilinear2d_aa _upsample_bilinear2d_aa.vec
    _upsample_nearest_exact2d _upsample_nearest_exact2d.vec abs absolute acos acosh add.Scalar add.Tensor addcdiv
    addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh as_strided_scatter asin asinh atan atan2
    atanh bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_and.Tensor bitwise_left_shift.Scalar_Tensor
    bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_not bitwise_or.Scalar
    bitwise_or.Scalar_Tensor bitwise_or.Tensor bitwise_right_shift.Scalar_Tensor bitwise_right_shift.Tensor
    bitwise_right_shift.Tensor_Scalar bitwise_xor.Scalar bitwise_xor.Scalar_Tensor bitwise_xor.Tensor ceil celu
    channel_shuffle clamp clamp.Tensor clamp_max clamp_max.Tensor clamp_min clamp_min.Tensor clip clip.Tensor clone
    col2im complex conj_physical constant_pad_nd copy copysign.Scalar copysign.Tensor cos cosh cudnn_batch_norm
    deg2rad dequantize.self dequantize.tensors digamma div.Scalar div.Scalar_mode div.Tensor div.Tensor_mode
    divide.Scalar divide.Scalar_mode divide.Tensor divide.Tensor_mode elu embedding eq.Scalar eq.Tensor erf erfc
    erfinv exp exp2 expm1 fill.Scalar fill.Tensor fix flip float_power.Scalar float_power.Tensor_Scalar
    float_power.Tensor_Tensor floor floor_divide floor_divide.Scalar fmax fmin fmod.Scalar fmod.Tensor frac gather
    gcd ge.Scalar ge.Tensor gelu glu greater.Scalar greater.Tensor greater_equal.Scalar greater_equal.Tensor
    grid_sampler_2d gt.Scalar gt.Tensor hardshrink hardsigmoid hardswish hardtanh heaviside hypot im2col
    index.Tensor index_put index_select isclose isfinite isin.Scalar_Tensor isin.Tensor_Scalar isin.Tensor_Tensor
    isinf isnan isneginf isposinf isreal lcm ldexp.Tensor le.Scalar le.Tensor leaky_relu lerp.Scalar lerp.Tensor
    less.Scalar less.Tensor less_equal.Scalar less_equal.Tensor lgamma log log10 log1p log2 log_sigmoid
    log_sigmoid_forward log_softmax.int logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit
    lt.Scalar lt.Tensor masked_fill.Scalar masked_fill.Tensor masked_select max max.dim max.other maximum min
    min.dim min.other minimum mish mul.Scalar mul.Tensor multiply.Scalar multiply.Tensor mvlgamma nan_to_num
    native_batch_norm ne.Scalar ne.Tensor neg negative nextafter not_equal.Scalar not_equal.Tensor pixel_shuffle
    pixel_unshuffle polar polygamma pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prelu rad2deg reciprocal
    reflection_pad2d relu relu6 remainder.Scalar remainder.Scalar_Tensor remainder.Tensor repeat
    repeat_interleave.Tensor repeat_interleave.self_Tensor repeat_interleave.self_int replication_pad2d
    result_type.Scalar result_type.Scalar_Scalar result_type.Scalar_Tensor result_type.Tensor roll round
    round.decimals rsqrt rsub.Scalar rsub.Tensor scatter.reduce scatter.src scatter.value scatter.value_reduce
    scatter_add select_scatter selu sgn sigmoid sign signbit silu sin sinc sinh slice_scatter softmax.int softplus
    softshrink special_entr special_erf special_exp2 special_expit special_expm1 special_log1p special_log_softmax
    special_logit special_logsumexp special_round special_sinc special_softmax special_xlog1py
    special_xlog1py.other_scalar special_xlog1py.self_scalar special_xlogy special_xlogy.other_scalar
    special_xlogy.self_scalar sqrt square stack sub.Scalar sub.Tensor subtract.Scalar subtract.Tensor tan tanh
    threshold to.device to.dtype to.dtype_layout to.other tril triu true_divide.Scalar true_divide.Tensor trunc
    type_as upsample_bicubic2d upsample_bicubic2d.vec upsample_bilinear2d upsample_bilinear2d.vec upsample_linear1d
    upsample_linear1d.vec upsample_nearest2d upsample_nearest2d.vec upsample_trilinear3d upsample_trilinear3d.vec
    where where.Scalar where.ScalarOther where.ScalarSelf where.self xlogy.Scalar_Other xlogy.Scalar_Self
    xlogy.Tensor zero
    """
)
"""Pointwise operators."""

REDUCTIONS = _aten(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _fused_rms_norm _log_softmax _softmax _unique2 all all.dim all.dims
    amax amin aminmax any any.dim any.dims argmax argmin argsort argsort.stable argwhere bincount bucketize.Scalar
    bucketize.Tensor corrcoef count_nonzero count_nonzero.dim_IntList cov cummax cummin cumprod cumsum
    cumulative_trapezoid.dx cumulative_trapezoid.x diff dist equal frobenius_norm.dim histc kthvalue
    linalg_matrix_norm linalg_norm linalg_vector_norm logcumsumexp logsumexp mean mean.dim median median.dim mode
    msort nanmean nanmedian nanmedian.dim nansum native_group_norm native_layer_norm nonzero nonzero_numpy
    nonzero_static norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype norm.ScalarOpt_dtype prod prod.dim_int
    rms_norm searchsorted.Scalar searchsorted.Tensor sort sort.stable std std.correction std.dim std_mean
    std_mean.correction std_mean.dim sum sum.dim_IntList topk trace trapezoid.dx trapezoid.x unique_consecutive var
    var.correction var.dim var_mean var_mean.correction var_mean.dim
    """
)
"""Reductions and sorting."""

INDEXING = _aten(
    """
    _unsafe_index.Tensor _unsafe_index_put block_diag cartesian_prod cat column_stack combinations concat
    concatenate diag diag_embed diagflat diagonal_scatter dstack fliplr flipud hstack index_add index_copy
    index_fill.int_Scalar index_fill.int_Tensor index_reduce kron masked_scatter meshgrid meshgrid.indexing one_hot
    pad put renorm rot90 row_stack scatter_reduce.two slice_inverse sum_to_size take take_along_dim tile vander
    vstack
    """
)
"""Indexing, scattering, concatenation and repetition."""

WRITES = _aten(
    """
    abs_ absolute_ acos_ acosh_ add_.Scalar add_.Tensor addcdiv_ addcmul_ arccos_ arccosh_ arcsin_ arcsinh_ arctan2_
    arctan_ arctanh_ asin_ asinh_ atan2_ atan_ atanh_ bitwise_and_.Scalar bitwise_and_.Tensor
    bitwise_left_shift_.Tensor bitwise_left_shift_.Tensor_Scalar bitwise_not_ bitwise_or_.Scalar bitwise_or_.Tensor
    bitwise_right_shift_.Tensor bitwise_right_shift_.Tensor_Scalar bitwise_xor_.Scalar bitwise_xor_.Tensor ceil_
    celu_ clamp_ clamp_.Tensor clamp_max_ clamp_max_.Tensor clamp_min_ clamp_min_.Tensor clip_ clip_.Tensor
    conj_physical_ copy_ copysign_.Scalar copysign_.Tensor cos_ cosh_ cumprod_ cumsum_ deg2rad_ detach_ digamma_
    div_.Scalar div_.Scalar_mode div_.Tensor div_.Tensor_mode divide_.Scalar divide_.Scalar_mode divide_.Tensor
    divide_.Tensor_mode elu_ eq_.Scalar eq_.Tensor erf_ erfc_ erfinv_ exp2_ exp_ expm1_ fill_.Scalar fill_.Tensor
    fill_diagonal_ fix_ float_power_.Scalar float_power_.Tensor floor_ floor_divide_.Scalar floor_divide_.Tensor
    fmod_.Scalar fmod_.Tensor frac_ gcd_ ge_.Scalar ge_.Tensor gelu_ greater_.Scalar greater_.Tensor
    greater_equal_.Scalar greater_equal_.Tensor gt_.Scalar gt_.Tensor hardsigmoid_ hardswish_ hardtanh_ heaviside_
    hypot_ index_add_ index_copy_ index_fill_.int_Scalar index_fill_.int_Tensor index_put_ index_reduce_ lcm_ ldexp_
    le_.Scalar le_.Tensor leaky_relu_ lerp_.Scalar lerp_.Tensor less_.Scalar less_.Tensor less_equal_.Scalar
    less_equal_.Tensor lgamma_ log10_ log1p_ log2_ log_ logical_and_ logical_not_ logical_or_ logical_xor_ logit_
    lt_.Scalar lt_.Tensor masked_fill_.Scalar masked_fill_.Tensor masked_scatter_ mish_ mul_.Scalar mul_.Tensor
    multiply_.Scalar multiply_.Tensor mvlgamma_ nan_to_num_ ne_.Scalar ne_.Tensor neg_ negative_ nextafter_
    not_equal_.Scalar not_equal_.Tensor polygamma_ pow_.Scalar pow_.Tensor put_ rad2deg_ reciprocal_ relu6_ relu_
    remainder_.Scalar remainder_.Tensor renorm_ round_ round_.decimals rsqrt_ scatter_.reduce scatter_.src
    scatter_.value scatter_.value_reduce scatter_add_ scatter_reduce_.two selu_ sgn_ sigmoid_ sign_ silu_ sin_ sinc_
    sinh_ sqrt_ square_ squeeze_ squeeze_.dim squeeze_.dims sub_.Scalar sub_.Tensor subtract_.Scalar
    subtract_.Tensor swapaxes_ t_ tan_ tanh_ threshold_ transpose_ tril_ triu_ true_divide_.Scalar
    true_divide_.Tensor trunc_ unsqueeze_ xlogy_.Scalar_Other xlogy_.Tensor zero_
    """
)
"""In-place variants of the operators above: each writes only its first argument."""

NETWORK = _aten(
    """
    _batch_norm_no_update _batch_norm_with_update_functional _cdist_forward _convolution _convolution.deprecated
    _embedding_bag _fft_c2c _fft_c2r _fft_r2c _native_batch_norm_legit.no_stats _native_batch_norm_legit_functional
    _native_multi_head_attention _pdist_forward _scaled_dot_product_attention_math
    _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_for_cpu _upsample_nearest_exact1d _upsample_nearest_exact1d.vec
    _upsample_nearest_exact3d _upsample_nearest_exact3d.vec adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d addbmm addmm addmm.dtype addmv
    addr affine_grid_generator alpha_dropout alpha_dropout_ avg_pool1d avg_pool2d avg_pool3d baddbmm baddbmm.dtype
    batch_norm bilinear binary_cross_entropy binary_cross_entropy_with_logits bmm bmm.dtype cdist chain_matmul
    conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution cosine_similarity cross cross_entropy_loss dot dropout dropout_ einsum
    embedding_bag embedding_bag.padding_idx feature_alpha_dropout feature_dropout feature_dropout_ fft_fft fft_fft2
    fft_fftn fft_fftshift fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_irfft fft_irfft2
    fft_irfftn fft_rfft fft_rfft2 fft_rfftn ger grid_sampler grid_sampler_3d group_norm gru.data gru.input gru_cell
    huber_loss inner instance_norm inverse kl_div l1_loss layer_norm linalg_cholesky linalg_cholesky_ex linalg_cross
    linalg_det linalg_inv linalg_inv_ex linalg_matmul linalg_multi_dot linalg_solve linalg_vecdot linear lstm.data
    lstm.input lstm_cell matmul max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices max_unpool2d max_unpool3d mm mm.dtype mse_loss mv native_channel_shuffle native_dropout
    nll_loss nll_loss_forward nll_loss_nd outer pairwise_distance pdist reflection_pad1d reflection_pad3d
    replication_pad1d replication_pad3d rnn_relu.data rnn_relu.input rnn_relu_cell rnn_tanh.data rnn_tanh.input
    rnn_tanh_cell scaled_dot_product_attention smooth_l1_loss tensordot upsample_nearest1d upsample_nearest1d.vec
    upsample_nearest3d upsample_nearest3d.vec vdot
    """
)
"""Layers: convolutions, matmuls, attention, norms, pooling, recurrent cells, transforms, losses."""

RANDOM = _aten(
    """
    bernoulli bernoulli.Tensor bernoulli.p bernoulli_.Tensor bernoulli_.float cauchy_ exponential_ geometric_
    log_normal_ multinomial normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor normal.float_float normal_
    rand rand.generator rand_like rand_like.generator randint randint.generator randint.low randint.low_generator
    randint_like randint_like.Tensor randint_like.Tensor_generator randint_like.generator randint_like.low_dtype
    randint_like.low_generator_dtype randn randn.generator randn_like randn_like.generator random_ random_.from
    random_.to randperm randperm.generator uniform_
    """
)
"""Random numbers, never computed for constants."""

CHECKS = _aten(
    """
    _assert_scalar _assert_tensor_metadata _local_scalar_dense is_nonzero item sym_constrain_range
    sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size.int sym_storage_offset sym_stride.int
    """
)
"""Sizes as values, and assertions."""

DETECTION = frozenset(
    f"torchvision.{name}.default"
    for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
)
"""Operators of torchvision's detection models."""

COMPUTED = FACTORIES | VIEWS | POINTWISE | REDUCTIONS | INDEXING | WRITES
"""Operators whose results are computed from constants."""

PURE = COMPUTED | NETWORK | RANDOM | CHECKS | DETECTION
"""All pure operators."""

_ROUNDING = ("floor", "trunc")
_SCATTERED = ("sum", "prod", "mean", "amax", "amin", "add", "multiply")
_NORMS = ("forward", "backward", "ortho")
WORDS: dict[str, tuple[str, ...]] = {
    "gelu.approximate": ("none", "tanh"),
    "gelu_.approximate": ("none", "tanh"),
    "pad.mode": ("constant", "reflect", "replicate", "circular"),
    "meshgrid.indexing": ("ij", "xy"),
    "searchsorted.side": ("left", "right"),
    **{f"conv{n}d.padding": ("same", "valid") for n in (1, 2, 3)},
    **{f"{name}.rounding_mode": _ROUNDING for name in ("div", "div_", "divide", "divide_")},
    **{
        f"{name}{end}.reduce": _SCATTERED for name in ("scatter", "scatter_reduce", "index_reduce") for end in ("", "_")
    },
    **{f"fft_{name}{end}.norm": _NORMS for name in ("fft", "ifft", "rfft", "irfft") for end in ("", "2", "n")},
    **{f"fft_{name}.norm": _NORMS for name in ("hfft", "ihfft")},
}
"""Allowed words of arguments, by operator and argument name."""

TEXTS = {"einsum.equation": r"[A-Za-z.,> -]{1,200}", "_assert_scalar.assert_msg": r"(?s).{0,10000}"}
"""Patterns of free text in arguments, by operator and argument name; torch prints the message of an assertion."""
