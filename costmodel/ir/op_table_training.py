"""Rows of operators of a training step: losses, backward passes, and optimizers that update many tensors at once.

Rows of forward operators are in `costmodel.ir.op_table`. Names are those of ATen, which has none for the gradients of
recurrent layers; operators that torch's compiler makes of others (`prims`) have the namespace before their name.
"""

from __future__ import annotations

from costmodel.ir.flops import recurrent_launches, recurrent_scratch
from costmodel.ir.op_row import Role, Row, row_of
from costmodel.ir.training_costs import (
    attention_backward_flops,
    attention_step_flops,
    convolution_backward_flops,
    foreach_flops,
    foreach_launches,
    gradient_again,
    recurrent_backward_flops,
)

pointwise = row_of(Role.POINTWISE, saves="")
reduction = row_of(Role.REDUCTION, saves="")
library = row_of(Role.EXTERN, saves="")
window = row_of(Role.WINDOW, saves="")
scatter = row_of(Role.POINTWISE, saves="", work=2, scatters=True)
rare = row_of(Role.EXTERN, saves="", rare=True)
foreach = row_of(Role.EXTERN, saves="", kind="foreach", flops=foreach_flops, launches=foreach_launches)
attention = row_of(Role.EXTERN, kind="attention", flops=attention_step_flops, saves="query key value #0 #1")
attention_backward = row_of(Role.EXTERN, kind="attention_backward", flops=attention_backward_flops, saves="")
recurrent_backward = row_of(
    Role.EXTERN,
    saves="",
    flops=recurrent_backward_flops,
    scratch=recurrent_scratch,
    launches=recurrent_launches,
    measured=False,
)

TRAINING_ROWS: tuple[Row, ...] = (
    # Convolutions: one row for the gradients by input, weight and bias, which the output mask chooses.
    library("convolution_backward", kind="conv_backward", flops=convolution_backward_flops),
    # Attention.
    attention("_scaled_dot_product_flash_attention"),
    attention("_scaled_dot_product_efficient_attention"),
    attention("_scaled_dot_product_cudnn_attention"),
    attention_backward("_scaled_dot_product_flash_attention_backward"),
    attention_backward("_scaled_dot_product_efficient_attention_backward"),
    attention_backward("_scaled_dot_product_cudnn_attention_backward"),
    # Recurrent layers, whose forward rows are those of inference.
    recurrent_backward("lstm_backward"),
    recurrent_backward("gru_backward"),
    recurrent_backward("rnn_tanh_backward"),
    recurrent_backward("rnn_relu_backward"),
    rare("_thnn_fused_lstm_cell_backward_impl", kind="lstm_cell_backward", work=30),
    rare("_thnn_fused_gru_cell_backward", kind="gru_cell_backward", work=30),
    # Norms: statistics need a second pass over the operands.
    reduction("native_batch_norm_backward", kind="batch_norm_backward", work=12, scratch=gradient_again),
    reduction("cudnn_batch_norm_backward", kind="batch_norm_backward", work=12, scratch=gradient_again),
    reduction("native_layer_norm_backward", kind="layer_norm_backward", work=14, scratch=gradient_again),
    reduction("native_group_norm_backward", kind="group_norm_backward", work=14, scratch=gradient_again),
    reduction("_fused_rms_norm_backward", kind="rms_norm_backward", work=12, scratch=gradient_again),
    reduction("_weight_norm_interface_backward", kind="weight_norm_backward", work=8),
    # Softmax and losses.
    reduction("_softmax_backward_data", kind="softmax_backward", work=4),
    reduction("_log_softmax_backward_data", kind="log_softmax_backward", work=6),
    reduction("nll_loss_forward", kind="nll_loss", work=2),
    pointwise("nll_loss_backward", work=0),
    reduction("nll_loss2d_forward", kind="nll_loss", work=2),
    pointwise("nll_loss2d_backward", work=0),
    reduction("mse_loss", work=3),
    pointwise("mse_loss_backward", work=3),
    reduction("smooth_l1_loss", work=5),
    pointwise("smooth_l1_loss_backward", work=5),
    reduction("huber_loss", work=5),
    pointwise("huber_loss_backward", work=5),
    reduction("binary_cross_entropy", work=10),
    pointwise("binary_cross_entropy_backward", work=6),
    # Activations.
    pointwise("threshold_backward"),
    pointwise("gelu_backward", work=16, uses=2),
    pointwise("silu_backward", work=9, uses=2),
    pointwise("hardswish_backward", work=6, uses=2),
    pointwise("hardsigmoid_backward", work=4),
    pointwise("hardtanh_backward", work=3),
    pointwise("sigmoid_backward", work=3, uses=2),
    pointwise("tanh_backward", work=3, uses=2),
    pointwise("elu_backward", work=6, uses=2),
    pointwise("leaky_relu_backward", work=2),
    pointwise("softplus_backward", work=6),
    pointwise("mish_backward", work=14, uses=2),
    pointwise("log_sigmoid_backward", work=6),
    pointwise("glu_backward", work=8),
    pointwise("_prelu_kernel_backward", work=4),
    pointwise("native_dropout_backward", work=2),
    pointwise("softshrink_backward", work=3),
    pointwise("hardshrink_backward", work=3),
    # Pooling, resampling, reads at indices.
    scatter("max_pool2d_with_indices_backward", kind="max_pool2d_backward"),
    scatter("max_pool3d_with_indices_backward", kind="max_pool3d_backward"),
    scatter("adaptive_max_pool2d_backward"),
    pointwise("avg_pool2d_backward", work=4),
    pointwise("avg_pool3d_backward", work=8),
    pointwise("_adaptive_avg_pool2d_backward", kind="adaptive_avg_pool2d_backward", work=4),
    rare("_adaptive_avg_pool3d_backward", kind="adaptive_avg_pool3d_backward", work=8),
    rare("upsample_bilinear2d_backward", kind="upsample_backward", work=20),
    rare("upsample_bicubic2d_backward", kind="upsample_backward", work=60),
    rare("upsample_trilinear3d_backward", kind="upsample_backward", work=40),
    rare("upsample_linear1d_backward", kind="upsample_backward", work=10),
    pointwise("upsample_nearest2d_backward", kind="upsample_backward", work=4),
    pointwise("upsample_nearest1d_backward", kind="upsample_backward", work=2),
    pointwise("upsample_nearest3d_backward", kind="upsample_backward", work=8),
    rare("grid_sampler_2d_backward", work=100),
    rare("reflection_pad2d_backward", work=2),
    rare("replication_pad2d_backward", work=2),
    scatter("embedding_dense_backward", kind="embedding_backward"),
    scatter("_unsafe_index_put", kind="index_put"),
    scatter("_index_put_impl", kind="index_put"),
    rare("_cdist_backward", kind="cdist_backward", work=4),
    rare("unfold_backward", work=2),
    # Max pooling whose places fit a byte, as torch's compiler saves them.
    window("prims__low_memory_max_pool_with_offsets", kind="max_pool2d"),
    pointwise("prims__low_memory_max_pool_offsets_to_indices", kind="max_pool2d", work=6),
    # Optimizers: one call updates every parameter, in as few launches as their number and size allow.
    foreach("_foreach_add"),
    foreach("_foreach_sub"),
    foreach("_foreach_mul"),
    foreach("_foreach_div"),
    foreach("_foreach_lerp"),
    foreach("_foreach_addcmul"),
    foreach("_foreach_addcdiv"),
    foreach("_foreach_sqrt"),
)  # fmt: skip
"""Rows of a training step's own operators, one operator a line."""
TRAINING_NAMES = frozenset(row.name for row in TRAINING_ROWS)
"""Their names."""
