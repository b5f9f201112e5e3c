"""Arithmetic and scratch memory of rare operators, by hand."""

from __future__ import annotations

import pytest

from costmodel.ir import Arg, Graph, Op, Ref, TensorType, Value, rare_costs


def of(base: str, result: TensorType, args: dict[str, Arg], **tensors: TensorType) -> tuple[Graph, Op]:
    values = tuple(Value(name, kind) for name, kind in tensors.items())
    refs = tuple((name, Ref(name)) for name in tensors)
    op = Op("0", base, (*refs, *args.items()), (result,))
    return Graph("g", values, (op,), (Ref("0"),)), op


def real(*shape: int) -> TensorType:
    return TensorType("float32", shape)


def complex_(*shape: int) -> TensorType:
    return TensorType("complex64", shape)


@pytest.mark.parametrize(
    ("base", "source", "result", "flops", "scratch"),
    [
        # 5 N log2 N for 3 transforms of 4 x 8 points; the tensor of 3 x 32 x 8 bytes is written and read between two
        ("_fft_c2c", complex_(3, 4, 8), complex_(3, 4, 8), 5 * 96 * 5, 2 * 768),
        ("_fft_r2c", real(3, 4, 8), complex_(3, 4, 5), 5 * 96 * 5 // 2, 2 * 480),
        ("_fft_c2r", complex_(3, 4, 5), real(3, 4, 8), 5 * 96 * 5 // 2, 2 * 480),
    ],
)
def test_transforms(base: str, source: TensorType, result: TensorType, flops: int, scratch: int):
    graph, op = of(base, result, {"dim": (-2, 2)}, self=source)
    assert rare_costs.fft_lengths(graph, op) == (4, 8)
    assert rare_costs.fft_flops(graph, op) == flops
    assert rare_costs.fft_scratch(graph, op) == scratch


def test_a_transform_along_one_dimension_needs_no_scratch_and_one_point_is_a_pass():
    graph, op = of("_fft_c2c", complex_(3, 8), {"dim": 1}, self=complex_(3, 8))
    assert rare_costs.fft_lengths(graph, op) == (8,)
    assert rare_costs.fft_scratch(graph, op) == 0
    graph, op = of("_fft_c2c", complex_(3, 1), {"dim": (1,)}, self=complex_(3, 1))
    assert rare_costs.fft_flops(graph, op) == 15


def test_deformable_convolutions():
    """2 images of 4 channels, 3 x 3 kernels, 5 x 6 results of 8 channels: 2 x 4 x 9 x 30 sampled elements."""
    tensors = {"input": real(2, 4, 7, 8), "weight": real(8, 4, 3, 3)}
    graph, op = of("deform_conv2d", real(2, 8, 5, 6), {}, **tensors)
    assert rare_costs.deform_conv_columns(graph, op) == 2160
    assert rare_costs.deform_conv_flops(graph, op) == 2 * 480 * 36 + 14 * 2160
    assert rare_costs.deform_conv_scratch(graph, op) == 2 * 2160 * 4


@pytest.mark.parametrize(
    ("shape", "args", "length", "flops"),
    [
        ((4, 8), {}, 8, 32 * 3),
        ((4, 8), {"dim": 0}, 4, 32 * 2),
        ((4, 8), {"dim": -2}, 4, 32 * 2),
        ((4, 8), {"dim": None}, 8, 32 * 3),
        ((4, 1), {"dim": 1}, 1, 4),
        ((), {"dim": 0}, 1, 1),
    ],
)
def test_sorting(shape: tuple[int, ...], args: dict[str, Arg], length: int, flops: int):
    graph, op = of("sort", real(*shape), args, self=real(*shape))
    assert rare_costs.length_along(real(*shape), op) == length
    assert rare_costs.sort_flops(graph, op) == flops


def test_distances_boxes_and_regions():
    graph, op = of("_cdist_forward", real(4, 5), {}, x1=real(4, 3), x2=real(5, 3))
    assert rare_costs.distance_flops(graph, op) == 3 * 20 * 3
    graph, op = of("nms", TensorType("int64", (5,)), {}, dets=real(5, 4))
    assert rare_costs.nms_flops(graph, op) == 10 * 19
    for ratio, samples in ((3, 9), (1, 1), (0, 4), (-1, 4), (None, 4)):
        graph, op = of("roi_align", real(2, 3, 7, 7), {"sampling_ratio": ratio}, input=real(1, 3, 9, 9))
        assert rare_costs.roi_align_flops(graph, op) == 8 * 294 * samples
