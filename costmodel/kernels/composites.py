"""Composite operators whose parts differ between devices, divided as ATen divides them on a GPU or on a CPU.

On a GPU a norm by root mean square is one kernel, a recurrent cell two matmuls and one kernel for its gates, and some
sampling at a grid a call of cuDNN (ATen's layer_norm.cpp, RNN.cpp and GridSampler.cpp). On a CPU, and on the meta
tensors of a capture, they are many elementwise operators. Capture records them whole.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from costmodel.ir import HALF_PRECISION, Graph, Op, Ref, TensorType
from costmodel.ir.builder import Rewrite, Site, rewritten

LSTM_GATES, GRU_GATES = 4, 3
CUDNN_GRID_DTYPES = ("float16", "float32", "float64")
CUDNN_GRID_CHANNELS = 1024
"""Most channels that cuDNN samples at a grid (`cond_cudnn_grid_sampler`)."""
LARGEST_32_BIT_INDEX = 2**31 - 1
SMALLEST_STEP = {"float32": 2.0**-23, "float64": sys.float_info.epsilon}
"""Distance from 1 to the next number: the `eps` of a norm that is given none, in the dtype that it computes in."""


def divided(graph: Graph, on_cpu: bool) -> Graph:
    """Replace composite operators by the operators that ATen runs on a device."""
    return rewritten(_cells_divided(graph) if on_cpu else graph, _ON_CPU if on_cpu else _ON_GPU)


def _fused_rms_norm(site: Site) -> list[Op]:
    """Norm by root mean square in one kernel; its parts for channels_last and for a weight of another dtype."""
    op, weight = site.op, site.ref("weight")
    mixed = weight is not None and site.graph.type_of(weight).dtype != op.type.dtype
    if mixed or site.graph.type_of(op.refs()[0]).layout == "nhwc":
        return rms_norm_parts(site)
    axes = op.arg("normalized_shape")
    lost = len(axes) if isinstance(axes, tuple) else 1
    computed = "float32" if op.type.dtype in HALF_PRECISION else op.type.dtype
    rows = TensorType(computed, (*op.type.shape[: len(op.type.shape) - lost], *(1 for _ in range(lost))))
    return [Op(op.name, "_fused_rms_norm", op.args, (op.type, rows), op.module)]


def rms_norm_parts(site: Site) -> list[Op]:
    """rms_norm(x) = x * rsqrt(mean(x^2) + eps) * weight, in float32 at least (ATen's `rms_norm_composite`)."""
    op, source, weight = site.op, site.ref("input"), site.ref("weight")
    axes = op.arg("normalized_shape")
    assert source is not None  # required by the operator's schema, as the axes are
    assert isinstance(axes, tuple)
    kind = op.type
    if kind.dtype in HALF_PRECISION:
        kind = replace(kind, dtype="float32")
        source = site.add("_to_copy", kind, self=source, dtype="torch.float32")
    dims = tuple(range(-len(axes), 0))
    rows = TensorType(kind.dtype, (*kind.shape[: len(kind.shape) - len(axes)], *(1 for _ in axes)))
    eps = op.arg("eps")
    squares = site.add("pow.Tensor_Scalar", kind, self=source, exponent=2)
    mean = site.add("mean.dim", rows, self=squares, dim=dims, keepdim=True)
    shifted = site.add("add.Scalar", rows, self=mean, other=SMALLEST_STEP.get(kind.dtype, 0.0) if eps is None else eps)
    scale = site.add("rsqrt", rows, self=shifted)
    if weight is None and kind.dtype == op.type.dtype:
        return site.finish("mul.Tensor", self=source, other=scale)
    result = site.add("mul.Tensor", kind, self=source, other=scale)
    if weight is None:
        return site.finish("_to_copy", self=result, dtype=f"torch.{op.type.dtype}")
    if kind.dtype == op.type.dtype:
        return site.finish("mul.Tensor", self=result, other=weight)
    weighted = site.add("mul.Tensor", kind, self=result, other=weight)
    return site.finish("_to_copy", self=weighted, dtype=f"torch.{op.type.dtype}")


def _on_cudnn_grid(site: Site) -> list[Op] | None:
    """CuDNN's sampler: bilinear, with zeros outside and aligned corners (ATen's `grid_sampler`)."""
    op = site.op
    kinds = [site.graph.type_of(ref) for ref in op.refs()]
    modes = op.arg("interpolation_mode"), op.arg("padding_mode"), op.arg("align_corners")
    known = all(kind.dtype in CUDNN_GRID_DTYPES and kind.numel <= LARGEST_32_BIT_INDEX for kind in kinds)
    if modes != (0, 0, True) or not known or kinds[0].shape[1] > CUDNN_GRID_CHANNELS:
        return None
    return site.finish("cudnn_grid_sampler", self=op.arg("input"), grid=op.arg("grid"))


def _fused_lstm_cell(site: Site) -> list[Op]:
    _, cell = _states(site)
    products = _products(site, LSTM_GATES)
    biases = {"input_bias": site.op.arg("b_ih"), "hidden_bias": site.op.arg("b_hh")}
    return site.finish("_thnn_fused_lstm_cell", input_gates=products[0], hidden_gates=products[1], cx=cell, **biases)


def _fused_gru_cell(site: Site) -> list[Op]:
    hidden, _ = _states(site)
    products = _products(site, GRU_GATES)
    biases = {"input_bias": site.op.arg("b_ih"), "hidden_bias": site.op.arg("b_hh")}
    return site.finish("_thnn_fused_gru_cell", input_gates=products[0], hidden_gates=products[1], hx=hidden, **biases)


def _states(site: Site) -> tuple[Ref, Ref]:
    """Hidden state and cell state before the step; the hidden state twice where there is no other."""
    given = site.op.arg("hx")
    states = given if isinstance(given, tuple) else (given,)
    first, last = states[0], states[-1]
    assert isinstance(first, Ref)  # required by the operator's schema, as the last one is
    assert isinstance(last, Ref)
    return first, last


def _products(site: Site, gates: int, biased: bool = False) -> list[Ref]:
    """Products of input and hidden state with their weights, with or without biases."""
    source, (hidden, _) = site.ref("input"), _states(site)
    kind = TensorType(site.op.type.dtype, (site.op.type.shape[0], gates * site.op.type.shape[1]))
    made = []
    for operand, name in ((source, "ih"), (hidden, "hh")):
        weight, bias = site.ref(f"w_{name}"), site.ref(f"b_{name}")
        assert weight is not None  # required by the operator's schema
        rows, columns = site.graph.type_of(weight).shape
        turned = site.add("t", TensorType(kind.dtype, (columns, rows), "strided"), self=weight)
        if biased and bias is not None:
            made.append(site.add("addmm", kind, self=bias, mat1=operand, mat2=turned))
        else:
            made.append(site.add("mm", kind, self=operand, mat2=turned))
    return made


def _parts(site: Site, source: Ref, count: int) -> list[Ref]:
    part = replace(site.op.type, layout="strided")
    made = site.add("unsafe_split.Tensor", (part,) * count, self=source, split_size=part.shape[1], dim=1)
    return [Ref(made.name, index) for index in range(count)]


def _cells_divided(graph: Graph) -> Graph:
    """Replace each LSTM cell by its parts; the new cell state is then a result of an operator of its own."""
    users, returned = graph.users(), frozenset(ref.name for ref in graph.outputs)
    cells: dict[Ref, Ref] = {}
    ops: list[Op] = []
    for op in graph.ops:
        moved = op.reading(lambda ref: cells.get(ref, ref)) if cells else op
        if op.base != "lstm_cell":
            ops.append(moved)
            continue
        made, cells[Ref(op.name, 1)] = _lstm_cell_parts(Site(graph, moved, users, returned))
        ops += made
    return (
        replace(graph, ops=tuple(ops), outputs=tuple(cells.get(ref, ref) for ref in graph.outputs)) if cells else graph
    )


def _lstm_cell_parts(site: Site) -> tuple[list[Op], Ref]:
    """C' = f c + i g; h' = o tanh(c'), with the gates i, f, g, o. The operators, and c'."""
    kind, (_, before) = site.op.type, _states(site)
    ours, hidden = _products(site, LSTM_GATES, biased=True)
    wide = TensorType(kind.dtype, (kind.shape[0], LSTM_GATES * kind.shape[1]))
    gates = _parts(site, site.add("add.Tensor", wide, self=hidden, other=ours), LSTM_GATES)
    functions = ("sigmoid", "sigmoid", "tanh", "sigmoid")
    i, f, g, o = (site.add(name, kind, self=gate) for name, gate in zip(functions, gates, strict=True))
    kept, new = site.add("mul.Tensor", kind, self=f, other=before), site.add("mul.Tensor", kind, self=i, other=g)
    cell = site.add("add.Tensor", kind, self=kept, other=new)
    shown = site.add("tanh", kind, self=cell)
    made = site.finish("mul.Tensor", self=o, other=shown)
    return [*made[:-1], replace(made[-1], types=(kind,))], cell


def _gru_cell_parts(site: Site) -> list[Op]:
    """H' = n + z (h - n), with n = tanh(x_n + r h_n) and the gates r, z."""
    kind, (before, _) = site.op.type, _states(site)
    ours, hidden = (_parts(site, product, GRU_GATES) for product in _products(site, GRU_GATES, biased=True))
    r, z = (
        site.add("sigmoid", kind, self=site.add("add.Tensor", kind, self=one, other=other))
        for one, other in zip(hidden[:2], ours[:2], strict=True)
    )
    reset = site.add("mul.Tensor", kind, self=hidden[2], other=r)
    new = site.add("tanh", kind, self=site.add("add.Tensor", kind, self=ours[2], other=reset))
    change = site.add("sub.Tensor", kind, self=before, other=new)
    return site.finish("add.Tensor", self=site.add("mul.Tensor", kind, self=change, other=z), other=new)


_ON_GPU: Mapping[str, Rewrite] = {
    "rms_norm": _fused_rms_norm,
    "lstm_cell": _fused_lstm_cell,
    "gru_cell": _fused_gru_cell,
    "grid_sampler_2d": _on_cudnn_grid,
}
_ON_CPU: Mapping[str, Rewrite] = {"rms_norm": rms_norm_parts, "gru_cell": _gru_cell_parts}
