"""Rewrite of batch norms that cannot be folded to a multiplication and an addition with constants.

Inductor's kernel of a batch norm in evaluation computes 1 / sqrt(var + eps) for each element. Networks with the norm
before the convolution have many: DenseNet-121 in float16 at batch 32 is predicted to take 5 % less without on an H200.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from costmodel.ir import Graph, Op, TensorType
from costmodel.ir.builder import Emitter
from costmodel.rewrites.batch_norm_constants import (
    accumulator,
    is_scaling,
    param_names,
    scale_and_shift,
    with_statistics_read,
)


def find_batch_norms(graph: Graph) -> tuple[str, ...]:
    """Names of batch norms in evaluation with constant parameters, whose statistics nothing reads."""
    params, read = param_names(graph), with_statistics_read(graph)
    return tuple(op.name for op in graph.ops if is_scaling(op, params) and op.name not in read)


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


def _scaled(graph: Graph, norm: Op) -> list[Op]:
    """Operators that compute scale and shift, then those that use them; the last has the batch norm's name."""
    emit = Emitter(graph, f"{norm.name}.scaled", norm.module)
    kind = norm.type
    exact = accumulator(kind.dtype)
    source = norm.refs()[0]
    scale, shift = scale_and_shift(emit, norm, TensorType(exact, (kind.shape[1],)))
    shape = (kind.shape[1], *(1,) * (len(kind.shape) - 2))
    channels = TensorType(exact, shape)
    scale, shift = (emit.add("view", channels, ("self", ref), ("size", shape)) for ref in (scale, shift))
    wide = replace(kind, dtype=exact)
    scaled = emit.add("mul.Tensor", wide, ("self", emit.cast(source, exact)), ("other", scale))
    shifted = emit.add("add.Tensor", wide, ("self", scaled), ("other", shift))
    emit.cast(shifted, kind.dtype)
    return [*emit.ops[:-1], replace(emit.ops[-1], name=norm.name)]
