"""Rewrite that folds batch norm into the convolution before it, as arithmetic on parameters in the graph."""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Arg, Graph, Op, Ref, TensorType
from costmodel.ir.builder import Emitter
from costmodel.rewrites.batch_norm_constants import (
    accumulator,
    is_scaling,
    param_names,
    scale_and_shift,
    with_statistics_read,
)
from costmodel.rewrites.hoist_constants import constant_names


def fold_batch_norm(graph: Graph) -> Graph:
    """Fold each batch norm into its convolution, if nothing else reads the convolution.

    The weight may be computed from parameters, as a cast that autocast makes is.

    With s = gamma / sqrt(var + eps): weight' = weight * s and bias' = beta + (bias - mean) * s, computed in float32,
    or in float64 for a float64 model (Jacob et al., "Quantization and Training of Neural Networks", 2018, section 3.2).
    """
    users = graph.users()
    returned = {ref.name for ref in graph.outputs}
    statistics_read = with_statistics_read(graph)
    made = {op.name: op for op in graph.ops}
    params = param_names(graph)
    constant = constant_names(graph)
    folded: dict[str, Op] = {}
    for op in graph.ops:
        source = op.arg("input")
        convolution = made.get(source.name) if isinstance(source, Ref) else None
        if convolution is None or not _foldable(op, convolution, params, constant):
            continue
        if users[convolution.name] == [op] and convolution.name not in returned and op.name not in statistics_read:
            folded[convolution.name] = op
    new_ops: list[Op] = []
    renamed = {norm.name: name for name, norm in folded.items()}
    for op in graph.ops:
        if op.name not in renamed:
            kept = op.reading(lambda ref: Ref(renamed.get(ref.name, ref.name), ref.index))
            new_ops += _folded(graph, kept, folded[op.name]) if op.name in folded else [kept]
    outputs = tuple(Ref(renamed.get(ref.name, ref.name), ref.index) for ref in graph.outputs)
    return replace(graph, ops=tuple(new_ops), outputs=outputs).verify()


def _foldable(norm: Op, convolution: Op, params: set[str], constant: set[str]) -> bool:
    if not is_scaling(norm, params) or convolution.base != "convolution" or convolution.arg("transposed") is not False:
        return False
    own = [ref for key in ("weight", "bias") for ref in _maybe(convolution.arg(key))]  # made before the convolution
    return all(ref.name in constant for ref in own)


def _maybe(arg: Arg) -> list[Ref]:
    return [arg] if isinstance(arg, Ref) else []


def _folded(graph: Graph, convolution: Op, norm: Op) -> list[Op]:
    """Operators that compute the new weight and bias, then the convolution that uses them."""
    emit = Emitter(graph, norm.name)
    weight, bias = convolution.arg("weight"), convolution.arg("bias")
    assert isinstance(weight, Ref)  # as checked by _foldable
    kind = graph.type_of(weight)
    exact = accumulator(kind.dtype)
    scale, shift = scale_and_shift(emit, norm, TensorType(exact, (kind.shape[0],)), bias)
    shape = (kind.shape[0], *(1,) * (len(kind.shape) - 1))
    factor = emit.add("view", TensorType(exact, shape), ("self", scale), ("size", shape))
    wide = replace(kind, dtype=exact)
    new_weight = emit.add("mul.Tensor", wide, ("self", emit.cast(weight, exact)), ("other", factor))
    new = {"weight": emit.cast(new_weight, kind.dtype), "bias": emit.cast(shift, kind.dtype)}
    args = tuple((key, new.get(key, value)) for key, value in convolution.args)
    if "bias" not in dict(args):
        args = (*args, ("bias", new["bias"]))
    return [*emit.ops, replace(convolution, args=args)]
