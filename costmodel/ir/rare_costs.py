"""Arithmetic and scratch memory of operators that few vision models call, from shapes."""

from __future__ import annotations

import math

from costmodel.ir import DTYPE_BYTES, Graph, Op, TensorType
from costmodel.ir.flops import tensor_of

_OVERLAP_OPERATIONS = 4 + 4 + 7 + 2 + 2
"""Operations of one intersection over union: corners, clamped sides, three areas, union, compared quotient."""
BILINEAR_OPERATIONS = 8 + 6
"""Operations of one bilinear sample: four multiply-accumulates, and their weights from the distances."""


def fft_lengths(graph: Graph, op: Op) -> tuple[int, ...]:
    """Lengths of the transformed dimensions; of a transform with a real side, the real ones."""
    whole = op.type if op.base == "_fft_c2r" else tensor_of(graph, op, "self")
    dims = op.arg("dim")
    rank = len(whole.shape)
    named = dims if isinstance(dims, tuple) else (dims,)
    return tuple(whole.shape[dim % rank] for dim in named if isinstance(dim, int) and rank)


def fft_flops(graph: Graph, op: Op) -> int:
    """5 N log2 N for each complex transform of N points, half of it where one side is real.

    The convention of FFTW's benchmarks (Frigo and Johnson, "The design and implementation of FFTW3", 2005) and of
    cuFFT's; the radix-2 algorithm takes about so many operations.
    """
    whole = op.type if op.base == "_fft_c2r" else tensor_of(graph, op, "self")
    points = math.prod(fft_lengths(graph, op))
    each = 5.0 if op.base == "_fft_c2c" else 2.5
    return round(each * whole.numel * math.log2(max(2, points)))


def fft_scratch(graph: Graph, op: Op) -> int:
    """The complex tensor written and read again between the passes, of which there is at least one a dimension."""
    source = tensor_of(graph, op, "self")
    largest = max(source.nbytes, op.type.nbytes)
    return 2 * largest * max(0, len(fft_lengths(graph, op)) - 1)


def deform_conv_columns(graph: Graph, op: Op) -> int:
    """Elements of the unfolded input: input channels x kernel elements, for each output pixel.

    torchvision's kernel (csrc/ops/cuda/deform_conv2d_kernel.cu) samples them bilinearly, then multiplies by the
    weight.
    """
    weight = tensor_of(graph, op, "weight").shape
    batch, channels = tensor_of(graph, op, "input").shape[:2]
    return batch * channels * math.prod(weight[2:]) * math.prod(op.type.shape[2:])


def deform_conv_flops(graph: Graph, op: Op) -> int:
    """A convolution's, and one bilinear sample for each element of the unfolded input."""
    products = 2 * op.type.numel * math.prod(tensor_of(graph, op, "weight").shape[1:])
    return products + BILINEAR_OPERATIONS * deform_conv_columns(graph, op)


def deform_conv_scratch(graph: Graph, op: Op) -> int:
    """The unfolded input, written and read again."""
    return 2 * deform_conv_columns(graph, op) * DTYPE_BYTES[op.type.dtype]


def sort_flops(graph: Graph, op: Op) -> int:
    """One comparison an element and level: log2 of the length of the sorted dimension."""
    source = tensor_of(graph, op, "self")
    return round(source.numel * math.log2(max(2, length_along(source, op))))


def length_along(source: TensorType, op: Op) -> int:
    """Length of the dimension that an operator works along; the last one if it names none."""
    dim = op.arg("dim", -1)
    if not source.shape:
        return 1
    return source.shape[dim % len(source.shape)] if isinstance(dim, int) else source.shape[-1]


def distance_flops(graph: Graph, op: Op) -> int:
    """Difference, square and sum in each coordinate of each pair."""
    return 3 * op.type.numel * tensor_of(graph, op, "x1").shape[-1]


def nms_flops(graph: Graph, op: Op) -> int:
    """One intersection over union for every pair of boxes."""
    boxes = tensor_of(graph, op, "dets").shape[0]
    return boxes * (boxes - 1) // 2 * _OVERLAP_OPERATIONS


def roi_align_flops(_: Graph, op: Op) -> int:
    """Mean of bilinear samples, each of 4 pixels: 2 x 4 x samples an output element.

    A `sampling_ratio` of 0 or less makes the number of samples depend on the size of the box; 2 x 2 is assumed, the
    value in detectors.
    """
    ratio = op.arg("sampling_ratio")
    side = ratio if isinstance(ratio, int) and ratio > 0 else 2
    return 8 * op.type.numel * side**2
