"""Subgraphs as graphs of their own: for the regions of a plan, and for cuDNN's fused convolutions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from costmodel.ir import Graph, Op, Ref, Value, operators

RELU = "relu"
FUSED, FUSED_ADD = "cudnn_convolution_relu", "cudnn_convolution_add_relu"


@dataclass(frozen=True, slots=True)
class Part:
    """A subgraph: some operators of a graph, extracted.

    Attributes:
        graph: the operators under canonical names; equal parts have equal graphs, whatever their parameters are called.
        inputs: values of the whole graph that the part's values stand for, in order.
        outputs: values of the whole graph that the part's outputs stand for, in order.
    """

    graph: Graph
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """Operators of a graph, in its order, with the values that they read from and return to the rest of it."""

    members: tuple[Op, ...]
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]


class Cutter:
    """Extractor of subgraphs of one graph, each in time linear in the size of the subgraph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ops = {op.name: op for op in graph.ops}
        self._position = {op.name: index for index, op in enumerate(graph.ops)}
        self._params = {value.name for value in graph.values if value.role == "param"}
        reads = [(ref, op.name) for op in graph.ops for ref in op.refs()] + [(ref, "") for ref in graph.outputs]
        self._reads: dict[str, list[tuple[int, Ref, str]]] = {}
        for number, (ref, reader) in enumerate(reads):
            self._reads.setdefault(ref.name, []).append((number, ref, reader))

    def select(self, names: Iterable[str]) -> Selection:
        """Select the named operators."""
        chosen = set(names)
        members = tuple(self._ops[name] for name in sorted(chosen, key=self._position.__getitem__))
        inputs = tuple(dict.fromkeys(ref for op in members for ref in op.refs() if ref.name not in chosen))
        read = sorted(found for op in members for found in self._reads.get(op.name, ()) if found[2] not in chosen)
        return Selection(members, inputs, tuple(dict.fromkeys(ref for _, ref, _ in read)))

    def cut(self, names: Iterable[str]) -> Part:
        """Extract the named operators, in the order of the graph."""
        return self.part(self.select(names))

    def values_of(self, inputs: Iterable[Ref]) -> tuple[Value, ...]:
        """Values that stand for inputs of a subgraph."""
        return tuple(
            Value(f"a{index}", self._graph.type_of(ref), "param" if ref.name in self._params else "input")
            for index, ref in enumerate(inputs)
        )

    def part(self, selection: Selection) -> Part:
        """Extract selected operators under canonical names."""
        members, inputs, outputs = selection.members, selection.inputs, selection.outputs
        values = self.values_of(inputs)
        renamed = {ref: Ref(value.name) for ref, value in zip(inputs, values, strict=True)}
        made: list[Op] = []
        new: dict[str, str] = {}
        for index, op in enumerate(members):
            args = op.args_reading(lambda ref: Ref(new[ref.name], ref.index) if ref.name in new else renamed[ref])
            made.append(Op(str(index), op.op, args, op.types))
            new[op.name] = str(index)
        returned = tuple(Ref(new[ref.name], ref.index) for ref in outputs)
        return Part(Graph("", values, tuple(made), returned), inputs, outputs)


def cut(graph: Graph, names: Iterable[str]) -> Part:
    """Extract the named operators of a graph, in the order of the graph."""
    return Cutter(graph).cut(names)


def fused_part(part: Part) -> Part | None:
    """Rewrite convolution + bias (+ add) + ReLU as one call of cuDNN; None for any other part.

    cuDNN's runtime fusion takes two-dimensional convolutions with a bias: `cudnn_convolution_relu` and, with the
    addend as `z`, `cudnn_convolution_add_relu`. Views of inputs come before the call, views of the result after it.
    """
    graph = part.graph
    convolution, *rest = (op for op in graph.ops if not operators.is_view(op))
    if not is_fusible(convolution) or not rest:
        return None
    last, before = rest[-1], [convolution, *rest][-2]
    if last.base != RELU or last.arg("self") != Ref(before.name):
        return None
    inside = {op.name for op in (convolution, *rest[:-1])}
    views = [op for op in graph.ops if operators.is_view(op)]
    if any(ref.name in inside for refs in (graph.outputs, *(op.refs() for op in views)) for ref in refs):
        return None
    addend = addend_of(rest[0], convolution) if len(rest) == 2 else None
    if len(rest) > 2 or (len(rest) == 2 and addend is None):
        return None
    geometry = tuple((key, convolution.arg(key)) for key in ("stride", "padding", "dilation", "groups"))
    operands = (("self", convolution.arg("input")), ("weight", convolution.arg("weight")))
    bias = ("bias", convolution.arg("bias"))
    if addend is None:
        fused = Op(last.name, FUSED, (*operands, bias, *geometry), last.types)
    else:
        fused = Op(last.name, FUSED_ADD, (*operands, ("z", addend), ("alpha", 1.0), bias, *geometry), last.types)
    behind = {last.name}
    for op in views:
        if any(ref.name in behind for ref in op.refs()):
            behind.add(op.name)
    first, then = ([op for op in views if (op.name in behind) == late] for late in (False, True))
    return Part(_numbered(Graph("", graph.values, (*first, fused, *then), graph.outputs)), part.inputs, part.outputs)


def _numbered(graph: Graph) -> Graph:
    """Rename the operators of a graph to their positions."""
    names = {op.name: str(index) for index, op in enumerate(graph.ops)}

    def renamed(ref: Ref) -> Ref:
        return Ref(names.get(ref.name, ref.name), ref.index)

    new_ops = tuple(replace(op.reading(renamed), name=names[op.name]) for op in graph.ops)
    return replace(graph, ops=new_ops, outputs=tuple(map(renamed, graph.outputs)))


def is_fusible(op: Op) -> bool:
    """Whether an operator is a convolution that cuDNN can fuse with ReLU: two-dimensional, with a bias."""
    plain = op.base == "convolution" and op.arg("transposed") is False and isinstance(op.arg("bias"), Ref)
    return plain and len(op.type.shape) == 4


def addend_of(op: Op, convolution: Op) -> Ref | None:
    """Value that an operator adds to the result of a convolution; None unless of the same shape and scaled by one."""
    pair = (op.arg("self"), op.arg("other"))
    if op.op != "add.Tensor" or op.arg("alpha", 1) != 1 or op.type.shape != convolution.type.shape:
        return None
    others = [item for item in pair if item != Ref(convolution.name)]
    return others[0] if len(others) == 1 and isinstance(others[0], Ref) else None
