"""Moves: rewrites of a whole graph that a plan may make before it decides how each unit runs, one entry a move.

A move keeps what the graph computes, up to rounding. What it computes of parameters alone is done once, when the plan
is applied (`costmodel.freeze`), so weights are prepared by ordinary operators in the graph and need no recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from costmodel.ir import Arg, Graph, Op, Ref, TensorType
from costmodel.layouts import STRIDED, in_channels_last

Move = Callable[[Graph], Graph]


def fold_batch_norm(graph: Graph) -> Graph:
    """Batch norm that alone reads a convolution becomes part of its weight and bias.

    With s = gamma / sqrt(var + eps): weight' = weight * s and bias' = beta + (bias - mean) * s, computed in float32
    (Jacob et al., "Quantization and Training of Neural Networks", 2018, section 3.2).
    """
    users = graph.users()
    returned = {ref.name for ref in graph.outputs}
    made = {op.name: op for op in graph.ops}
    params = {value.name for value in graph.values if value.role == "param"}
    folded: dict[str, Op] = {}
    for op in graph.ops:
        source = op.arg("input")
        convolution = made.get(source.name) if isinstance(source, Ref) else None
        if convolution is None or not _foldable(op, convolution, params):
            continue
        if users[convolution.name] == [op] and convolution.name not in returned and not _statistics_used(graph, op):
            folded[convolution.name] = op
    new_ops: list[Op] = []
    renamed = {norm.name: name for name, norm in folded.items()}
    for op in graph.ops:
        if op.name not in renamed:
            kept = op.reading(lambda ref: Ref(renamed.get(ref.name, ref.name), ref.index))
            new_ops += _folded(graph, kept, folded[op.name]) if op.name in folded else [kept]
    outputs = tuple(Ref(renamed.get(ref.name, ref.name), ref.index) for ref in graph.outputs)
    return replace(graph, ops=tuple(new_ops), outputs=outputs).verify()


def _foldable(norm: Op, convolution: Op, params: set[str]) -> bool:
    if norm.base != "native_batch_norm" or norm.arg("training") is not False or convolution.base != "convolution":
        return False
    if convolution.arg("transposed") is not False:
        return False
    refs = [*norm.refs()[1:], *(ref for key in ("weight", "bias") for ref in _maybe(convolution.arg(key)))]
    complete = all(isinstance(norm.arg(key), Ref) for key in ("running_mean", "running_var"))
    return complete and all(ref.name in params for ref in refs)


def _maybe(arg: Arg) -> list[Ref]:
    return [arg] if isinstance(arg, Ref) else []


def _statistics_used(graph: Graph, norm: Op) -> bool:
    readers = [ref for op in graph.ops for ref in op.refs()] + list(graph.outputs)
    return any(ref.name == norm.name and ref.index > 0 for ref in readers)


class _Emitter:
    """Appends operators on tensors of given types, named after the operator that they are made for."""

    def __init__(self, graph: Graph, origin: str) -> None:
        self.ops: list[Op] = []
        self._graph, self._origin = graph, origin
        self._types: dict[str, TensorType] = {}

    def type_of(self, ref: Ref) -> TensorType:
        return self._types.get(ref.name) or self._graph.type_of(ref)

    def add(self, op: str, like: TensorType, *args: tuple[str, Arg]) -> Ref:
        name = f"{self._origin}.{len(self.ops)}"
        self.ops.append(Op(name, op, args, (like,)))
        self._types[name] = like
        return Ref(name)

    def cast(self, ref: Ref, dtype: str) -> Ref:
        kind = self.type_of(ref)
        if kind.dtype == dtype:
            return ref
        return self.add("_to_copy", replace(kind, dtype=dtype), ("self", ref), ("dtype", f"torch.{dtype}"))


def _folded(graph: Graph, convolution: Op, norm: Op) -> list[Op]:
    """The convolution that does a batch norm's work too, after the operators that prepare its weight and bias."""
    emit = _Emitter(graph, norm.name)
    weight, bias = convolution.arg("weight"), convolution.arg("bias")
    mean, variance = norm.arg("running_mean"), norm.arg("running_var")
    gamma, beta = norm.arg("weight"), norm.arg("bias")
    assert isinstance(weight, Ref)
    assert isinstance(mean, Ref)
    assert isinstance(variance, Ref)  # as _foldable has seen
    kind = graph.type_of(weight)
    channel = TensorType("float32", (kind.shape[0],))
    variance = emit.cast(variance, "float32")
    scale = emit.add("add.Scalar", channel, ("self", variance), ("other", norm.arg("eps")))
    scale = emit.add("rsqrt", channel, ("self", scale))
    if isinstance(gamma, Ref):
        scale = emit.add("mul.Tensor", channel, ("self", scale), ("other", emit.cast(gamma, "float32")))
    shift = emit.cast(mean, "float32")
    if isinstance(bias, Ref):
        shift = emit.add("sub.Tensor", channel, ("self", shift), ("other", emit.cast(bias, "float32")))
    shift = emit.add("mul.Tensor", channel, ("self", shift), ("other", scale))
    shift = emit.add("neg", channel, ("self", shift))
    if isinstance(beta, Ref):
        shift = emit.add("add.Tensor", channel, ("self", shift), ("other", emit.cast(beta, "float32")))
    shape = (kind.shape[0], *(1,) * (len(kind.shape) - 1))
    factor = emit.add("view", TensorType("float32", shape), ("self", scale), ("size", shape))
    wide = replace(kind, dtype="float32")
    new_weight = emit.add("mul.Tensor", wide, ("self", emit.cast(weight, "float32")), ("other", factor))
    new = {"weight": emit.cast(new_weight, kind.dtype), "bias": emit.cast(shift, kind.dtype)}
    args = tuple((key, new.get(key, value)) for key, value in convolution.args)
    if "bias" not in dict(args):
        args = (*args, ("bias", new["bias"]))
    return [*emit.ops, replace(convolution, args=args)]


def channels_last(graph: Graph) -> Graph:
    """Every convolution in channels-last order; the graph as it is, where some operator reads strides of a view.

    What such an operator names are strides of memory in the order that it has now, and no copy can bring them back.
    """
    views_by_stride = any(op.base in STRIDED and graph.type_of(op.refs()[0]).layout != "nchw" for op in graph.ops)
    return graph if views_by_stride else in_channels_last(graph)


MOVES: Mapping[str, Move] = {
    "fold_batch_norm": fold_batch_norm,
    "channels_last": channels_last,
}
"""Every move by name; a plan lists the names of those it makes, in order."""


def rewrite(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph after some moves, in order."""
    for name in names:
        graph = MOVES[name](graph)
    return graph
