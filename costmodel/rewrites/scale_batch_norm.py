"""Rewrite of batch norms that cannot be folded to a multiplication and an addition with constants.

Inductor's kernel of a batch norm in evaluation computes 1 / sqrt(var + eps) for each element. In float16 that takes a
GPU longer than reading and writing the element; networks with the norm before the convolution have many.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from costmodel.ir import Graph, Op, Ref, TensorType
from costmodel.ir.builder import Emitter


def find_batch_norms(graph: Graph) -> tuple[str, ...]:
    """Names of batch norms in evaluation with constant parameters, whose statistics nothing reads."""
    params = {value.name for value in graph.values if value.role == "param"}
    readers = (*(ref for op in graph.ops for ref in op.refs()), *graph.outputs)
    statistics_read = {ref.name for ref in readers if ref.index > 0}
    return tuple(op.name for op in graph.ops if _is_scaling(op, params) and op.name not in statistics_read)


def scale_batch_norm(graph: Graph, only: Collection[str] = ()) -> Graph:
    """Replace batch norms by y = x * s + (beta - mean * s) with s = gamma / sqrt(var + eps).

    It is computed in float32, or in float64 for a float64 model, as the batch norm is.

    Args:
        graph: graph with folded batch norms.
        only: results of `find_batch_norms` to rewrite, others are ignored; empty for all.
    """
    chosen = {name for name in find_batch_norms(graph) if not only or name in only}
    new_ops = tuple(made for op in graph.ops for made in (_scaled(graph, op) if op.name in chosen else (op,)))
    return replace(graph, ops=new_ops).verify()


def _is_scaling(op: Op, params: Collection[str]) -> bool:
    if op.base != "native_batch_norm" or op.arg("training") is not False:
        return False
    complete = all(isinstance(op.arg(key), Ref) for key in ("running_mean", "running_var"))
    return complete and all(ref.name in params for ref in op.refs()[1:])


def _scaled(graph: Graph, norm: Op) -> list[Op]:
    """Operators that compute scale and shift, then those that use them; the last has the batch norm's name."""
    emit = Emitter(graph, f"{norm.name}.scaled", norm.module)
    kind = norm.type
    exact = "float64" if kind.dtype == "float64" else "float32"
    source = norm.refs()[0]
    scale, shift = _constants(emit, norm, TensorType(exact, (kind.shape[1],)), exact)
    shape = (kind.shape[1], *(1,) * (len(kind.shape) - 2))
    channels = TensorType(exact, shape)
    scale, shift = (emit.add("view", channels, ("self", ref), ("size", shape)) for ref in (scale, shift))
    wide = replace(kind, dtype=exact)
    scaled = emit.add("mul.Tensor", wide, ("self", emit.cast(source, exact)), ("other", scale))
    shifted = emit.add("add.Tensor", wide, ("self", scaled), ("other", shift))
    emit.cast(shifted, kind.dtype)
    return [*emit.ops[:-1], replace(emit.ops[-1], name=norm.name)]


def _constants(emit: Emitter, norm: Op, channel: TensorType, exact: str) -> tuple[Ref, Ref]:
    mean, variance = norm.arg("running_mean"), norm.arg("running_var")
    gamma, beta = norm.arg("weight"), norm.arg("bias")
    assert isinstance(mean, Ref)
    assert isinstance(variance, Ref)  # as checked by _is_scaling
    scale = emit.add("add.Scalar", channel, ("self", emit.cast(variance, exact)), ("other", norm.arg("eps")))
    scale = emit.add("rsqrt", channel, ("self", scale))
    if isinstance(gamma, Ref):
        scale = emit.add("mul.Tensor", channel, ("self", scale), ("other", emit.cast(gamma, exact)))
    shift = emit.add("mul.Tensor", channel, ("self", emit.cast(mean, exact)), ("other", scale))
    shift = emit.add("neg", channel, ("self", shift))
    if isinstance(beta, Ref):
        shift = emit.add("add.Tensor", channel, ("self", shift), ("other", emit.cast(beta, exact)))
    return scale, shift
