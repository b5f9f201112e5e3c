"""Rewrite of 1x1 convolutions on 1x1 images, as in squeeze-and-excitation, to matmuls.

cuDNN has no kernel for such a convolution. On an H200 it takes 3 to 5 us, and up to 17 us in float16 with channels that
are not a multiple of 8; cuBLAS takes 2 to 3 us for the matmul. In float32 cuBLAS is slower, except for a batch of one,
which is a matrix-vector product.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from costmodel.ir import Graph, Op, Ref, TensorType
from costmodel.ir.builder import Emitter
from costmodel.rewrites.hoist_constants import constant_names


def find_conv1x1(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Find 1x1 convolutions on 1x1 images, grouped by size: name of the first -> names of the group."""
    constant = constant_names(graph)
    alike: dict[object, list[str]] = {}
    for op in graph.ops:
        if _is_matmul(graph, op, constant):
            size = graph.type_of(op.refs()[0]).shape[1], op.type.shape[1], isinstance(op.arg("bias"), Ref)
            alike.setdefault(size, []).append(op.name)
    return {names[0]: tuple(names) for names in alike.values()}


def conv1x1_to_matmul(graph: Graph, only: Collection[str] = ()) -> Graph:
    """Replace 1x1 convolutions on 1x1 images by matmuls.

    Args:
        graph: graph with folded batch norms and final layouts.
        only: keys of `find_conv1x1` to rewrite, others are ignored; empty for all.
    """
    groups = find_conv1x1(graph)
    chosen = {name for first, names in groups.items() if not only or first in only for name in names}
    new_ops = tuple(made for op in graph.ops for made in (_matmul(graph, op) if op.name in chosen else (op,)))
    return replace(graph, ops=new_ops).verify()


def _is_matmul(graph: Graph, op: Op, constant: Collection[str]) -> bool:
    source, weight = op.arg("input"), op.arg("weight")
    plain = op.base == "convolution" and op.arg("transposed") is False and op.arg("groups") == 1
    if not plain or not isinstance(source, Ref) or not isinstance(weight, Ref) or op.name in constant:
        return False
    known = all(ref.name in constant for ref in (weight, op.arg("bias")) if isinstance(ref, Ref))
    kinds = graph.type_of(source), graph.type_of(weight), op.type
    dense = all(kind.layout != "strided" for kind in kinds)
    return known and dense and all(len(kind.shape) == 4 and kind.shape[2:] == (1, 1) for kind in kinds)


def _matmul(graph: Graph, op: Op) -> list[Op]:
    """Operators for x W^T + b on (images, channels), viewed as 1x1 images under the convolution's name."""
    emit = Emitter(graph, f"{op.name}.matmul", op.module)
    source, weight, bias = op.arg("input"), op.arg("weight"), op.arg("bias")
    assert isinstance(source, Ref)
    assert isinstance(weight, Ref)  # as checked by _is_matmul
    (images, channels), (results, _) = graph.type_of(source).shape[:2], graph.type_of(weight).shape[:2]

    def matrix(rows: int, columns: int, layout: str = "nchw") -> TensorType:
        return TensorType(op.type.dtype, (rows, columns), layout)

    rows = emit.add("view", matrix(images, channels), ("self", source), ("size", (images, channels)))
    flat = emit.add("view", matrix(results, channels), ("self", weight), ("size", (results, channels)))
    turned = emit.add("t", matrix(channels, results, "strided"), ("self", flat))
    if isinstance(bias, Ref):
        result = emit.add("addmm", matrix(images, results), ("self", bias), ("mat1", rows), ("mat2", turned))
    else:
        result = emit.add("mm", matrix(images, results), ("self", rows), ("mat2", turned))
    seen = Op(op.name, "view", (("self", result), ("size", op.type.shape)), op.types, op.module)
    return [*emit.ops, seen]
