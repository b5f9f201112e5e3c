"""FLOPs of library calls, from shapes. A multiply-accumulate counts as 2."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costmodel.errors import GraphError
from costmodel.ir import Graph, Op, Ref, TensorType, refs_in


def tensor_of(graph: Graph, op: Op, name: str) -> TensorType:
    """Type of an argument that is a tensor.

    Raises:
        GraphError: it is no tensor.
    """
    ref = op.arg(name)
    if not isinstance(ref, Ref):
        raise GraphError(f"{op.op} %{op.name}: argument {name!r} is not a tensor")
    return graph.type_of(ref)


def convolution_flops(graph: Graph, op: Op) -> int:
    """2 x output elements x (input channels a group x kernel elements); transposed: input elements instead."""
    weight = tensor_of(graph, op, "weight").shape
    moved = tensor_of(graph, op, "input") if op.arg("transposed") else op.type
    return 2 * moved.numel * math.prod(weight[1:])


def matmul_flops(graph: Graph, op: Op) -> int:
    """2 x output elements x length of the contracted dimension; 4 times as many for complex numbers."""
    names = dict(op.args)
    left = next(name for name in ("mat1", "batch1", "self", "input") if name in names)
    if op.base in ("addmm", "baddbmm"):
        left = "mat1" if op.base == "addmm" else "batch1"
    product = 8 if op.type.is_complex else 2
    return product * op.type.numel * tensor_of(graph, op, left).shape[-1]


def attention_flops(graph: Graph, op: Op) -> int:
    """Two matmuls, query x key and weights x value: 2 x queries x keys x (head size of key + of value)."""
    query, key = tensor_of(graph, op, "query"), tensor_of(graph, op, "key")
    value = tensor_of(graph, op, "value")
    return 2 * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def multi_head_attention_flops(graph: Graph, op: Op) -> int:
    """Four square matmuls and attention: 8 x tokens x width^2 + 4 x tokens x length x width."""
    batch, length, width = tensor_of(graph, op, "query").shape
    return 4 * batch * length * width * (2 * width + length)


def recurrent_flops(graph: Graph, op: Op) -> int:
    """One product with each weight matrix at every step of every sequence: 2 x steps x elements of the matrices."""
    source = tensor_of(graph, op, "input").shape
    weights = [graph.type_of(ref).shape for ref in refs_in(op.arg("params"))]
    return 2 * math.prod(source[:-1]) * sum(math.prod(shape) for shape in weights if len(shape) == 2)


def recurrent_launches(graph: Graph, op: Op) -> int:
    """A matmul and a kernel for the gates, at every step of each layer and direction, one after another."""
    source = tensor_of(graph, op, "input").shape
    layers, twice = op.arg("num_layers", 1), bool(op.arg("bidirectional"))
    assert isinstance(layers, int)  # by the operator's schema
    return 2 * _steps(source, op) * layers * (2 if twice else 1)


def recurrent_scratch(graph: Graph, op: Op) -> int:
    """Bytes of the weights of the hidden states, which are read again at each step."""
    matrices = [kind for kind in map(graph.type_of, refs_in(op.arg("params"))) if len(kind.shape) == 2]
    return (_steps(tensor_of(graph, op, "input").shape, op) - 1) * sum(kind.nbytes for kind in matrices[1::2])


def _steps(source: Sequence[int], op: Op) -> int:
    """Length of the sequences; a source without batch is one sequence."""
    return source[1] if op.arg("batch_first") and len(source) > 2 else source[0]
