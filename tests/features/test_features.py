"""Features: traffic, bounds and features equal to numbers worked out by hand; stable names."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from collectors.workloads.convolution_space import ConvUnit, fused_graph
from collectors.workloads.matmuls import batched_graph, linear_graph
from costmodel.features import GROUPS, TRAINING_GROUPS, UNRULED, Roofline, anchor_flops, featurize, group_of
from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.traffic import traffic_bytes

ROOFLINE = Roofline(bytes_per_us=1000.0, peak={"conv.float32": 100.0, "matmul.float32": 4.0}, floor_us=1.0)


def conv_text(dtype: str = "float32") -> str:
    """A 1x1 convolution of 8 channels to 16 on two images of 4 x 4 pixels."""
    return f"""graph _ {{
      input %a0: {dtype}[2,8,4,4]
      param %p0: {dtype}[16,8,1,1]
      %0 = convolution(input=%a0, weight=%p0, bias=None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], \
transposed=False, output_padding=[0, 0], groups=1) : {dtype}[2,16,4,4]
      return %0
    }}"""


NORM_RELU = """graph _ {
  input %a0: float32[1,4,2,2]
  param %p0: float32[4]
  param %p1: float32[4]
  param %p2: float32[4]
  param %p3: float32[4]
  %0 = native_batch_norm(input=%a0, weight=%p0, bias=%p1, running_mean=%p2, running_var=%p3, training=False, \
momentum=0.1, eps=1e-05) : float32[1,4,2,2], float32[0], float32[0]
  %1 = relu(self=%0) : float32[1,4,2,2]
  return %1
}"""
SLICED = """graph _ {
  input %a0: float32[4,4]
  param %p0: float32[12,4]
  %0 = slice.Tensor(self=%p0, dim=0, start=4, end=8) : float32[4,4] strided
  %1 = add.Tensor(self=%a0, other=%0) : float32[4,4]
  return %1
}"""
ATTENTION = """graph _ {
  input %a0: float16[2,3,130,64]
  input %a1: float16[2,3,50,64]
  input %a2: float16[2,3,50,64]
  %0 = scaled_dot_product_attention(query=%a0, key=%a1, value=%a2) : float16[2,3,130,64] strided
  return %0
}"""


def aten(text: str) -> Kernel:
    return Kernel("aten", parse(text), ())


def triton(text: str) -> Kernel:
    return Kernel("triton", parse(text), ())


LINEAR = Kernel("aten", linear_graph(rows=4, inner=8, columns=16, dtype="float32", bias=True), ())
TRANSPOSED = """graph _ {
  input %a0: float32[1,8,4,4]
  param %p0: float32[8,4,2,2]
  %0 = convolution(input=%a0, weight=%p0, bias=None, stride=[2, 2], padding=[0, 0], dilation=[1, 1], \
transposed=True, output_padding=[0, 0], groups=1) : float32[1,4,8,8]
  return %0
}"""
TRANSFORMED = """graph _ {
  input %a0: float32[2,4,8,8]
  %0 = _fft_r2c(self=%a0, dim=[2, 3], normalization=0, onesided=True) : complex64[2,4,8,5]
  return %0
}"""
SAMPLED = """graph _ {
  input %a0: float32[1,3,8,8]
  input %a1: float32[1,4,4,2]
  %0 = grid_sampler_2d(input=%a0, grid=%a1, interpolation_mode=2, padding_mode=1, align_corners=False) \
: float32[1,3,4,4]
  %1 = relu(self=%0) : float32[1,3,4,4]
  return %1
}"""
KERNELS = {
    "conv": aten(conv_text()),
    "gemm": LINEAR,
    "attention": aten(ATTENTION),
    "gemm_tf32": replace(LINEAR, tf32=True),
    "aten": aten(SLICED),
    "triton": triton(NORM_RELU),
    "rare_conv": aten(TRANSPOSED),
    "rare_aten": aten(TRANSFORMED),
    "rare_triton": triton(SAMPLED),
}


@pytest.mark.parametrize(
    ("kernel", "traffic", "flops", "bound_us"),
    [
        # 2*8*16*4 read, 16*8*4 of weights, 2*16*16*4 written; 2 * 512 outputs * 8; 8192 / 100 is above 3.584
        pytest.param(aten(conv_text()), 1024 + 512 + 2048, 8192, 1 + 81.92, id="conv"),
        # half of the bytes; no peak is known for float16, so traffic binds
        pytest.param(aten(conv_text("float16")), 512 + 256 + 1024, 8192, 1 + 1.792, id="conv-float16"),
        # 4*8*4 read, 16*8*4 of weights through a transposition, 16*4 of bias, 4*16*4 written; 2 * 64 outputs * 8
        pytest.param(LINEAR, 128 + 512 + 64 + 256, 1024, 1 + 1024 / 4, id="linear"),
        # 16 elements in and out, four parameters of four elements; a fused group's arithmetic is free
        pytest.param(triton(NORM_RELU), 64 + 4 * 16 + 64, 0, 1 + 0.192, id="bn-relu"),
        # 64 of the parameter's 192 bytes
        pytest.param(aten(SLICED), 64 + 64 + 64, 0, 1 + 0.192, id="slice-of-parameter"),
    ],
)
def test_traffic_arithmetic_and_bound_by_hand(kernel: Kernel, traffic: int, flops: int, bound_us: float):
    assert traffic_bytes(kernel.graph) == traffic
    assert anchor_flops(kernel) == flops
    assert ROOFLINE.bound_us(kernel) == pytest.approx(bound_us)


def test_a_value_that_two_operators_read_is_fetched_once():
    text = """graph _ {
      input %a0: float32[100]
      %0 = relu(self=%a0) : float32[100]
      %1 = sigmoid(self=%a0) : float32[100]
      %2 = add.Tensor(self=%0, other=%1) : float32[100]
      return %2
    }"""
    assert traffic_bytes(parse(text)) == 400 + 400


def test_three_slices_of_one_projection_count_as_the_whole():
    text = """graph _ {
      input %a0: float32[12,4]
      %0 = slice.Tensor(self=%a0, dim=0, start=0, end=4) : float32[4,4] strided
      %1 = slice.Tensor(self=%a0, dim=0, start=4, end=8) : float32[4,4] strided
      %2 = slice.Tensor(self=%a0, dim=0, start=8, end=12) : float32[4,4] strided
      %3 = add.Tensor(self=%0, other=%1) : float32[4,4]
      %4 = add.Tensor(self=%3, other=%2) : float32[4,4]
      return %4
    }"""
    assert traffic_bytes(parse(text)) == 12 * 4 * 4 + 64


def test_what_is_cut_from_a_computed_value_needs_only_its_part_of_the_input():
    text = """graph _ {
      input %a0: float32[12,4]
      param %p0: float32[4]
      %0 = add.Tensor(self=%a0, other=%p0) : float32[12,4]
      %1 = slice.Tensor(self=%0, dim=0, start=0, end=3) : float32[3,4] strided
      %2 = relu(self=%1) : float32[3,4]
      %3 = sigmoid(self=%1) : float32[3,4]
      return %2, %3
    }"""
    graph = parse(text)
    assert traffic_bytes(graph) == 3 * 4 * 4 + 4 * 4 + 2 * 3 * 4 * 4  # both read the same three rows; the bias is whole
    assert featurize(triton(text), ROOFLINE, 132)["log_domain"] == math.log2(3 * 4 + 1)


def test_a_part_beside_the_whole_adds_nothing():
    text = """graph _ {
      input %a0: float32[12,4]
      %0 = relu(self=%a0) : float32[12,4]
      %1 = slice.Tensor(self=%0, dim=0, start=0, end=3) : float32[3,4] strided
      %2 = sigmoid(self=%1) : float32[3,4]
      return %0, %2
    }"""
    assert traffic_bytes(parse(text)) == 12 * 4 * 4 + 12 * 4 * 4 + 3 * 4 * 4


def test_a_reduction_of_a_part_reads_that_part_and_a_product_all_of_its_operands():
    reduced = """graph _ {
      input %a0: float32[12,4]
      %0 = mean.dim(self=%a0, dim=[1], keepdim=True) : float32[12,1]
      %1 = slice.Tensor(self=%0, dim=0, start=0, end=3) : float32[3,1] strided
      %2 = relu(self=%1) : float32[3,1]
      return %2
    }"""
    assert traffic_bytes(parse(reduced)) == 3 * 4 * 4 + 3 * 4
    product = """graph _ {
      input %a0: float32[12,4]
      param %p0: float32[4,5]
      %0 = mm(self=%a0, mat2=%p0) : float32[12,5]
      %1 = slice.Tensor(self=%0, dim=0, start=0, end=3) : float32[3,5] strided
      return %1
    }"""
    assert traffic_bytes(parse(product)) == 12 * 4 * 4 + 4 * 5 * 4 + 3 * 5 * 4


UPSAMPLED = """graph _ {{
  input %a0: float32[2,64,7,7] {layout}
  %0 = upsample_{way}2d(input=%a0, output_size=[14, 14]) : float32[2,64,14,14] {layout}
  return %0
}}"""
GROUPED = (
    "graph _ {\n  input %a0: float32[2,64,7,7]\n"
    "  %0 = native_group_norm(input=%a0, weight=None, bias=None, N=2, C=64, HxW=49, group=4, eps=1e-05)"
    " : float32[2,64,7,7], float32[2,4], float32[2,4]\n  return %0\n}"
)


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        pytest.param(UPSAMPLED.format(way="bilinear", layout=""), 2 * 64, id="each-pixel-of-all-channels"),
        pytest.param(UPSAMPLED.format(way="bilinear", layout="nhwc"), 0, id="channels-last"),
        pytest.param(UPSAMPLED.format(way="nearest", layout=""), 0, id="nearest"),
        pytest.param(GROUPED, 16 * 49, id="a-group"),
        pytest.param(SLICED, 0, id="elementwise"),
    ],
)
def test_elements_that_a_kernel_takes_one_by_one(text: str, elements: int):
    assert featurize(aten(text), ROOFLINE, 132)["log_alone"] == math.log2(elements + 1)


@pytest.mark.parametrize("group", [group for group in GROUPS if group not in TRAINING_GROUPS])
def test_every_kernel_goes_to_its_group(group: str):
    assert group_of(KERNELS[group]) == group


def test_sizes_enter_as_logarithms_and_tiles_as_waves():
    kernel = Kernel("aten", batched_graph(2, 200, 96, 6, "float32"), ())
    named = featurize(kernel, ROOFLINE, 3)
    assert named["log_m"] == math.log2(201)
    assert named["log_n"] == math.log2(7)
    assert named["log_k"] == math.log2(97)
    assert named["log_products"] == math.log2(3)
    assert named["log_waves_64"] == pytest.approx(math.log2(2 * 4 * 1 / 3))  # ceil(200/64) x ceil(6/64) tiles
    assert named["wave_loss_64"] == pytest.approx(3 / (8 / 3))
    assert named["log_waves_128"] == pytest.approx(math.log2(2 * 2 * 1 / 3))
    assert named["wave_loss_128"] == pytest.approx(2 / (4 / 3))
    assert (named["n_odd"], named["n_by_32"]) == (2.0, 0.0)  # 6 is no multiple of 8 or of 4
    assert (named["k_odd"], named["k_by_32"]) == (0.0, 1.0)


def test_less_than_a_wave_loses_nothing():
    named = featurize(LINEAR, ROOFLINE, 132)
    assert named["wave_loss_64"] == named["wave_loss_128"] == 1.0
    assert named["log_waves_64"] == pytest.approx(-math.log2(132))


def test_what_all_groups_share():
    named = featurize(KERNELS["conv"], ROOFLINE, 132, position=0.25)
    assert named["position"] == 0.25
    assert named["log_traffic"] == math.log2(3585)
    assert named["log_flops"] == math.log2(8193)
    assert named["log_intensity"] == pytest.approx(math.log2(8192 / 3584 + 1))
    assert named["log_written"] == math.log2(2049)
    assert named["log_params"] == math.log2(513)
    assert named["log_bound_us"] == pytest.approx(math.log2(1 + 82.92))
    assert (named["compute_bound"], named["dtype_bytes"], named["bfloat16"], named["nhwc"]) == (1.0, 4.0, 0.0, 0.0)


def test_a_convolution_in_words():
    unit = ConvUnit(2, 12, 12, 9, kernel=3, stride=2, padding=1, groups=12, batch_norm=False)
    kernel = Kernel("aten", fused_graph(unit), ())
    named = featurize(kernel, ROOFLINE, 132)
    assert group_of(kernel) == "conv"
    assert (named["fused"], named["residual"], named["depthwise"]) == (1.0, 0.0, 1.0)
    assert named["grouped"] == 0.0
    assert (named["kernel_size"], named["stride"], named["padding"]) == (3.0, 2.0, 1.0)
    assert (named["in_pixels_odd"], named["out_pixels_odd"]) == (3.0, 3.0)  # 9 x 9 and 5 x 5
    assert (named["uneven_groups"], named["multiplied"], named["oblong"]) == (0.0, 0.0, 0.0)
    assert (named["in_viewed"], named["out_nhwc"]) == (0.0, 1.0)
    assert (named["log_batch"], named["log_groups"]) == (math.log2(3), math.log2(13))
    assert (named["bias"], named["in_nhwc"], named["dims"], named["pointwise"]) == (1.0, 1.0, 2.0, 0.0)
    assert named["log_out_pixels"] == math.log2(26)


@pytest.mark.parametrize(
    ("seen", "channels_last"),
    [
        ("slice.Tensor(self=%a0, dim=1, start=1, end=9223372036854775807) : float16[2,9,16] strided", 1.0),
        ("slice.Tensor(self=%a0, dim=2, start=0, end=16) : float16[2,9,16] strided", 1.0),
        ("transpose.int(self=%a0, dim0=1, dim1=2) : float16[2,9,16] strided", 0.0),
    ],
)
def test_a_map_made_of_tokens_is_channels_last(seen, channels_last):
    source = {"1": "[2,10,16]", "2": "[2,9,20]", "s": "[2,16,9]"}[seen.partition("dim=")[2][:1] or "s"]
    graph = parse(
        f"""graph _ {{
          input %a0: float16{source}
          param %p0: float16[32,1,3,3]
          %0 = {seen}
          %1 = transpose.int(self=%0, dim0=1, dim1=2) : float16[2,16,9] strided
          %2 = view(self=%1, size=[2, 16, 3, 3]) : float16[2,16,3,3] strided
          %3 = convolution(input=%2, weight=%p0, bias=None, stride=[2, 2], padding=[1, 1], dilation=[1, 1], \
transposed=False, output_padding=[0, 0], groups=16) : float16[2,32,2,2] nhwc
          return %3
        }}"""
    )
    named = featurize(Kernel("aten", graph, ()), ROOFLINE, 132)
    assert (named["in_nhwc"], named["in_strided"], named["in_viewed"]) == (channels_last, 1.0 - channels_last, 1.0)


def convolution_text(height: int, width: int, groups: int) -> str:
    """Eight channels to eight on one image of 14 x 14 pixels, which is a view of a sequence of pixels."""
    padding = f"[{height // 2}, {width // 2}]"
    return f"""graph _ {{
      input %a0: float32[1,8,196]
      param %p0: float32[8,{8 // groups},{height},{width}]
      %0 = view(self=%a0, size=[1, 8, 14, 14]) : float32[1,8,14,14]
      %1 = convolution(input=%0, weight=%p0, bias=None, stride=[1, 1], padding={padding}, dilation=[1, 1], \
transposed=False, output_padding=[0, 0], groups={groups}) : float32[1,8,14,14]
      return %1
    }}"""


@pytest.mark.parametrize(
    ("kernel", "size", "oblong"),
    [
        ((1, 7, 1), math.sqrt(7), math.log2(7)),
        ((7, 1, 1), math.sqrt(7), -math.log2(7)),
        ((4, 1, 8), 2.0, -2.0),
        ((3, 3, 8), 3.0, 0.0),
    ],
)
def test_kernels_that_are_not_square(kernel: tuple[int, int, int], size: float, oblong: float):
    named = featurize(aten(convolution_text(*kernel)), ROOFLINE, 132)
    assert named["kernel_size"] == pytest.approx(size)
    assert named["oblong"] == pytest.approx(oblong)
    assert (named["in_viewed"], named["out_nhwc"]) == (1.0, 0.0)
    assert named["in_pixels_odd"] == 1.0  # 196 is a multiple of 4, and not of 8


def test_attention_blocks_by_hand():
    named = featurize(KERNELS["attention"], ROOFLINE, 132)
    assert named["log_blocks"] == pytest.approx(math.log2(6 * 3 / 132 + 1))  # 6 heads, ceil(130/64) blocks of queries
    assert (named["log_queries"], named["log_keys"]) == (math.log2(131), math.log2(51))
    assert named["dtype_bytes"] == 2.0


COMMON = (
    "position log_bound_us log_traffic log_flops log_intensity log_written log_params compute_bound dtype_bytes "
    "bfloat16 nhwc"
)
GOLDEN = {
    "conv": (
        "log_weight_bytes fused residual log_batch log_in_channels log_out_channels log_in_pixels log_out_pixels "
        "kernel_size oblong pointwise stride padding dilation log_groups depthwise grouped uneven_groups multiplied "
        "transposed bias in_nhwc in_strided in_viewed out_nhwc weight_nhwc dims in_channels_odd in_pixels_odd "
        "out_pixels_odd log_m log_n log_k log_products log_waves_64 "
        "wave_loss_64 log_waves_128 wave_loss_128 n_odd n_by_32 k_odd k_by_32"
    ),
    "gemm": (
        "batched bias left_strided right_strided weights single_row log_m log_n log_k log_products "
        "log_waves_64 wave_loss_64 log_waves_128 wave_loss_128 n_odd n_by_32 k_odd k_by_32"
    ),
    "attention": ("log_heads log_queries log_keys log_head_size dims masked strided log_blocks"),
    "aten": (
        "is_batch_norm is_add is_mul is_relu is_cat is_copy is_silu is_gelu is_sigmoid is_hardswish "
        "is_hardsigmoid is_hardtanh is_mean is_layer_norm is_group_norm is_softmax is_max_pool2d "
        "is_avg_pool2d is_pad is_roll is_leaky_relu is_div is_sub is_index is_sum is_adaptive_avg_pool2d "
        "is_upsample other_kind inputs log_largest log_out log_reduced log_last log_rows log_pixels strided broadcast "
        "log_window work blocks log_alone log_run mixed_order log_hop order_unknown"
    ),
    "triton": (
        "operators work inputs large_inputs outputs log_domain log_outer log_inner reductions reduces_nhwc "
        "split log_windows cats cat_inputs copies to_nhwc of_params shuffles slices strided indexing "
        "transcendental log_last log_channels blocks"
    ),
}
NUMBERS = "log_length lengths log_prime log_indices log_chosen mode padding_mode log_window stride"
FAMILIES = (
    "is_fft is_grid is_affine is_nearest is_linear is_cubic is_antialias is_columns is_pad is_deform is_nms is_roi "
    "is_gather is_scatter is_accumulate is_search is_sort is_topk is_scan is_pool is_weight_norm is_distance is_product"
)
GOLDEN |= {
    "gemm_tf32": GOLDEN["gemm"],
    "rare_conv": GOLDEN["conv"],
    "rare_aten": f"{FAMILIES} {NUMBERS} log_flops_anchor log_scratch inputs log_largest log_out log_last log_rows "
    "log_pixels rank strided complex work blocks",
    "rare_triton": f"{GOLDEN['triton']} {FAMILIES} {NUMBERS} log_rare launches",
}


@pytest.mark.parametrize("group", [group for group in GROUPS if group not in TRAINING_GROUPS])
def test_feature_names_and_their_order_are_those_that_shipped_predictors_were_trained_on(group: str):
    assert tuple(featurize(KERNELS[group], ROOFLINE, 132)) == tuple(f"{COMMON} {GOLDEN[group]}".split())


def test_a_transform_by_hand():
    """8 x 8 points, half of them complex: 2.5 x 512 x log2 64; rows written between the passes and read again."""
    kernel = KERNELS["rare_aten"]
    assert anchor_flops(kernel) == 2.5 * 512 * 6
    read, written, between = 512 * 4, 2 * 4 * 8 * 5 * 8, 2 * (2 * 4 * 8 * 5 * 8)
    assert ROOFLINE.bound_us(kernel) == pytest.approx(1 + (read + written + between) / 1000)
    named = featurize(kernel, ROOFLINE, 132)
    assert (named["lengths"], named["log_length"], named["log_prime"]) == (2.0, math.log2(65), 1.0)
    assert (named["is_fft"], named["is_grid"], named["complex"]) == (1.0, 0.0, 1.0)


def test_how_an_image_is_sampled_is_known_inside_a_fused_kernel():
    named = featurize(KERNELS["rare_triton"], ROOFLINE, 132)
    assert (named["is_grid"], named["mode"], named["padding_mode"]) == (1.0, 2.0, 1.0)
    assert named["log_rare"] == math.log2(3 * 16 + 1)


@pytest.mark.parametrize(
    ("text", "group"),
    [
        pytest.param(TRANSPOSED.replace("transposed=True", "transposed=False"), "conv", id="not-transposed"),
        pytest.param(NORM_RELU, "aten", id="common"),
        pytest.param(TRANSFORMED.replace("_fft_r2c", "no_such_operator"), UNRULED, id="no-rule"),
    ],
)
def test_groups_of_what_is_not_rare(text: str, group: str):
    assert group_of(aten(text)) == group


def test_an_operator_without_a_rule_takes_at_least_its_traffic():
    """Every operand and every result, of which only the first is read later."""
    text = """graph _ {
      input %a0: float32[10,10]
      %0 = no_such_operator(self=%a0) : float32[10,10], float32[10]
      return %0
    }"""
    assert ROOFLINE.least_us(aten(text)) == pytest.approx(1 + (400 + 400 + 40) / 1000)


def test_no_feature_is_infinite():
    for kernel in KERNELS.values():
        assert all(math.isfinite(value) for value in featurize(kernel, ROOFLINE, 132).values())
