"""Moves: rewrites of a whole graph that a plan may make before it decides how each unit runs, one entry a move.

A move keeps what the graph computes, up to rounding. What it computes of parameters alone is done once, when the plan
is applied (`costmodel.freeze`), so weights are prepared by ordinary operators in the graph and need no recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.epilogues import find_epilogues, move_epilogues
from costmodel.errors import PlanError
from costmodel.ir import Arg, Graph, Op, Ref, TensorType
from costmodel.layouts import in_channels_last, is_strided
from costmodel.pixels import find_pixels, pixels_as_products
from costmodel.rewriting import Emitter
from costmodel.siblings import find_siblings, merge_siblings


def fold_batch_norm(graph: Graph) -> Graph:
    """Batch norm that alone reads a convolution becomes part of its weight and bias.

    With s = gamma / sqrt(var + eps): weight' = weight * s and bias' = beta + (bias - mean) * s, computed in float32,
    or in float64 if the model is (Jacob et al., "Quantization and Training of Neural Networks", 2018, section 3.2).
    """
    users = graph.users()
    returned = {ref.name for ref in graph.outputs}
    readers = (*(ref for op in graph.ops for ref in op.refs()), *graph.outputs)
    statistics_read = {ref.name for ref in readers if ref.index > 0}
    made = {op.name: op for op in graph.ops}
    params = {value.name for value in graph.values if value.role == "param"}
    folded: dict[str, Op] = {}
    for op in graph.ops:
        source = op.arg("input")
        convolution = made.get(source.name) if isinstance(source, Ref) else None
        if convolution is None or not _foldable(op, convolution, params):
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


def _folded(graph: Graph, convolution: Op, norm: Op) -> list[Op]:
    """The convolution that does a batch norm's work too, after the operators that prepare its weight and bias."""
    emit = Emitter(graph, norm.name)
    weight, bias = convolution.arg("weight"), convolution.arg("bias")
    mean, variance = norm.arg("running_mean"), norm.arg("running_var")
    gamma, beta = norm.arg("weight"), norm.arg("bias")
    assert isinstance(weight, Ref)
    assert isinstance(mean, Ref)
    assert isinstance(variance, Ref)  # as _foldable has seen
    kind = graph.type_of(weight)
    exact = "float64" if kind.dtype == "float64" else "float32"
    channel = TensorType(exact, (kind.shape[0],))
    variance = emit.cast(variance, exact)
    scale = emit.add("add.Scalar", channel, ("self", variance), ("other", norm.arg("eps")))
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
    shape = (kind.shape[0], *(1,) * (len(kind.shape) - 1))
    factor = emit.add("view", TensorType(exact, shape), ("self", scale), ("size", shape))
    wide = replace(kind, dtype=exact)
    new_weight = emit.add("mul.Tensor", wide, ("self", emit.cast(weight, exact)), ("other", factor))
    new = {"weight": emit.cast(new_weight, kind.dtype), "bias": emit.cast(shift, kind.dtype)}
    args = tuple((key, new.get(key, value)) for key, value in convolution.args)
    if "bias" not in dict(args):
        args = (*args, ("bias", new["bias"]))
    return [*emit.ops, replace(convolution, args=args)]


def channels_last(graph: Graph, only: Collection[str] = ()) -> Graph:
    """Convolutions in channels-last order: those named and no other, or all.

    The graph as it is, where some operator reads strides of a view: what such an operator names are strides of memory
    in the order that it has now, and no copy can bring them back.
    """
    views_by_stride = any(is_strided(op) and graph.type_of(op.refs()[0]).layout != "nchw" for op in graph.ops)
    return graph if views_by_stride else in_channels_last(graph, only=only or None)


@dataclass(frozen=True, slots=True)
class Move:
    """One entry of the table.

    Attributes:
        matches: what it looks for.
        costs: what it costs and saves, and where a plan's prices see that.
        rewrite: makes it: at the places that are named, or wherever it matches.
        places: names of the places in a graph where it can be made one by one; none, if it is made wherever it matches.
    """

    matches: str
    costs: str
    rewrite: Callable[[Graph, Collection[str]], Graph]
    places: Callable[[Graph], tuple[str, ...]] = lambda _: ()


MOVES: Mapping[str, Move] = {
    "fold_batch_norm": Move(
        matches="a batch norm in evaluation that alone reads a convolution, both with constant parameters",
        costs="nothing but the new weights' memory; saves the batch norm's kernel and lets cuDNN fuse what follows",
        rewrite=lambda graph, _: fold_batch_norm(graph),
    ),
    "channels_last": Move(
        matches="two-dimensional convolutions, if nothing reads strides of a view",
        costs="a copy, as an operator of its own, where what a convolution reads lies in another order",
        rewrite=channels_last,
        places=lambda graph: tuple(op.name for op in graph.ops if op.base == "convolution" and len(op.type.shape) == 4),
    ),
    "merge_siblings": Move(
        matches="1x1 convolutions of one geometry on one input, each read by a ReLU alone or none of them so",
        costs="copies of the pieces, as operators of their own, where they are not dense; saves kernels and reads",
        rewrite=merge_siblings,
        places=lambda graph: tuple(find_siblings(graph)),
    ),
    "epilogues_into_cat": Move(
        matches="convolutions with bias and ReLU that only a concatenation of up to eight inputs reads",
        costs="a bare convolution for cuDNN's fused one; the epilogue is free in Inductor's concatenation",
        rewrite=move_epilogues,
        places=lambda graph: tuple(find_epilogues(graph)),
    ),
    "pixels_as_products": Move(
        matches="1x1 convolutions of images of one pixel, as in squeeze-and-excitation, with constant weights",
        costs="cuBLAS's product for cuDNN's convolution, and cuDNN's fused ReLU, which becomes a kernel of its own",
        rewrite=pixels_as_products,
        places=lambda graph: tuple(find_pixels(graph)),
    ),
}
"""Every move by name."""


def rewrite(graph: Graph, moves: Sequence[str]) -> Graph:
    """The graph after some moves, in order.

    Args:
        graph: as it was captured.
        moves: names; one that is made at some places only is followed by a colon and their names, with commas between.

    Raises:
        PlanError: there is no such move, or no such place.
    """
    for text in moves:
        name, _, listed = text.partition(":")
        move, places = MOVES.get(name), frozenset(listed.split(",") if listed else ())
        if move is None:
            raise PlanError(f"no move is called {name!r}; make the plan again with this version")
        if odd := sorted(places - set(move.places(graph))) if places else []:
            raise PlanError(f"the move {name} cannot be made at {odd[0]}; make the plan again")
        graph = move.rewrite(graph, places)
    return graph
