"""Batch norms in evaluation as y = x * s + t: which ones, and the operators that compute s and t from parameters."""

from __future__ import annotations

from collections.abc import Collection

from costmodel.ir import Arg, Graph, Op, Ref, TensorType
from costmodel.ir.builder import Emitter


def is_scaling(op: Op, params: Collection[str]) -> bool:
    """Whether an operator is a batch norm in evaluation with constant parameters.

    Args:
        op: any operator.
        params: names of the graph's parameters.
    """
    if op.base != "native_batch_norm" or op.arg("training") is not False:
        return False
    complete = all(isinstance(op.arg(key), Ref) for key in ("running_mean", "running_var"))
    return complete and all(ref.name in params for ref in op.refs()[1:])


def param_names(graph: Graph) -> set[str]:
    """Names of a graph's parameters."""
    return {value.name for value in graph.values if value.role == "param"}


def with_statistics_read(graph: Graph) -> set[str]:
    """Names of operators of which something reads a further result, such as the saved statistics of a batch norm."""
    readers = (*(ref for op in graph.ops for ref in op.refs()), *graph.outputs)
    return {ref.name for ref in readers if ref.index > 0}


def accumulator(dtype: str) -> str:
    """Type that a batch norm of a type is computed in."""
    return "float64" if dtype == "float64" else "float32"


def scale_and_shift(emit: Emitter, norm: Op, channel: TensorType, bias: Arg = None) -> tuple[Ref, Ref]:
    """Add operators for s = gamma / sqrt(var + eps) and t = beta - (mean - bias) * s.

    Args:
        emit: takes the operators.
        norm: batch norm for which `is_scaling` holds.
        channel: type of the results, a value for each channel.
        bias: what is added to the input before, a value for each channel; no `Ref` for nothing.
    """
    exact = channel.dtype
    mean, variance = norm.arg("running_mean"), norm.arg("running_var")
    gamma, beta = norm.arg("weight"), norm.arg("bias")
    assert isinstance(mean, Ref)
    assert isinstance(variance, Ref)  # as checked by is_scaling
    scale = emit.add("add.Scalar", channel, ("self", emit.cast(variance, exact)), ("other", norm.arg("eps")))
    scale = emit.add("rsqrt", channel, ("self", scale))
    if isinstance(gamma, Ref):
        scale = emit.add("mul.Tensor", channel, ("self", scale), ("other", emit.cast(gamma, exact)))
    shift = emit.cast(mean, exact)
    if isinstance(bias, Ref):
        shift = emit.add("sub.Tensor", channel, ("self", shift), ("other", emit.cast(bias, exact)))
    shift = emit.add("mul.Tensor", channel, ("self", shift), ("other", scale))
    shift = emit.add("neg", channel, ("self", shift))
    if isinstance(beta, Ref):
        shift = emit.add("add.Tensor", channel, ("self", shift), ("other", emit.cast(beta, exact)))
    return scale, shift
