"""FLOPs of library calls, from shapes. A multiply-accumulate counts as 2."""

from __future__ import annotations

import math

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op, Ref, TensorType, refs_in

_OVERLAP_OPERATIONS = 4 + 4 + 7 + 2 + 2
"""Operations of one intersection over union: corners, clamped sides, three areas, union, compared quotient."""


def _tensor(graph: Graph, op: Op, name: str) -> TensorType:
    ref = op.arg(name)
    if not isinstance(ref, Ref):
        raise GraphError(f"{op.op} %{op.name}: argument {name!r} is not a tensor")
    return graph.type_of(ref)


def convolution_flops(graph: Graph, op: Op) -> int:
    """2 x output elements x (input channels a group x kernel elements); transposed: input elements instead."""
    weight = _tensor(graph, op, "weight").shape
    moved = _tensor(graph, op, "input") if op.arg("transposed") else op.type
    return 2 * moved.numel * math.prod(weight[1:])


def matmul_flops(graph: Graph, op: Op) -> int:
    """2 x output elements x length of the contracted dimension."""
    names = dict(op.args)
    left = next(name for name in ("mat1", "batch1", "self", "input") if name in names)
    if op.base in ("addmm", "baddbmm"):
        left = "mat1" if op.base == "addmm" else "batch1"
    return 2 * op.type.numel * _tensor(graph, op, left).shape[-1]


def attention_flops(graph: Graph, op: Op) -> int:
    """Two matmuls, query x key and weights x value: 2 x queries x keys x (head size of key + of value)."""
    query, key = _tensor(graph, op, "query"), _tensor(graph, op, "key")
    value = _tensor(graph, op, "value")
    return 2 * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def multi_head_attention_flops(graph: Graph, op: Op) -> int:
    """Four square matmuls and attention: 8 x tokens x width^2 + 4 x tokens x length x width."""
    batch, length, width = _tensor(graph, op, "query").shape
    return 4 * batch * length * width * (2 * width + length)


def recurrent_flops(graph: Graph, op: Op) -> int:
    """One product with each weight matrix at every step of every sequence: 2 x steps x elements of the matrices."""
    source = _tensor(graph, op, "input").shape
    weights = [graph.type_of(ref).shape for ref in refs_in(op.arg("params"))]
    return 2 * math.prod(source[:-1]) * sum(math.prod(shape) for shape in weights if len(shape) == 2)


def nms_flops(graph: Graph, op: Op) -> int:
    """One intersection over union for every pair of boxes."""
    boxes = _tensor(graph, op, "dets").shape[0]
    return boxes * (boxes - 1) // 2 * _OVERLAP_OPERATIONS


def roi_align_flops(_: Graph, op: Op) -> int:
    """Mean of bilinear samples, each of 4 pixels: 2 x 4 x samples an output element.

    A `sampling_ratio` of 0 or less makes the number of samples depend on the size of the box; 2 x 2 is assumed, the
    value in detectors.
    """
    ratio = op.arg("sampling_ratio")
    side = ratio if isinstance(ratio, int) and ratio > 0 else 2
    return 8 * op.type.numel * side**2
