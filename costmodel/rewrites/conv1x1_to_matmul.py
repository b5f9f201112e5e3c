"""Convolutions on images of one pixel as products of matrices, which a 1x1 convolution there is.

Squeeze-and-excitation is full of them. cuDNN has no kernel made for such a convolution: on an H200 it takes 3 to 5 us,
in float16 with channels that are no multiple of 8 up to 17, where cuBLAS takes 2 to 3 us for a product of that size. In
float32 cuBLAS takes longer, but for one image, which is a vector.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from costmodel.ir import Graph, Op, Ref, TensorType
from costmodel.ir.builder import Emitter
from costmodel.rewrites.hoist_constants import constant_names


def find_conv1x1(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Convolutions of one pixel, those of one size together, by the name of the first of them."""
    constant = constant_names(graph)
    alike: dict[object, list[str]] = {}
    for op in graph.ops:
        if _of_one_pixel(graph, op, constant):
            size = graph.type_of(op.refs()[0]).shape[1], op.type.shape[1], isinstance(op.arg("bias"), Ref)
            alike.setdefault(size, []).append(op.name)
    return {names[0]: tuple(names) for names in alike.values()}


def conv1x1_to_matmul(graph: Graph, only: Collection[str] = ()) -> Graph:
    """The graph with convolutions of one pixel as products: the groups that are named, or all.

    Args:
        graph: its batch norms folded, and its layouts decided.
        only: names as `find_conv1x1` gives them; others are passed over.
    """
    groups = find_conv1x1(graph)
    chosen = {name for first, names in groups.items() if not only or first in only for name in names}
    new_ops = tuple(made for op in graph.ops for made in (_product(graph, op) if op.name in chosen else (op,)))
    return replace(graph, ops=new_ops).verify()


def _of_one_pixel(graph: Graph, op: Op, constant: Collection[str]) -> bool:
    source, weight = op.arg("input"), op.arg("weight")
    plain = op.base == "convolution" and op.arg("transposed") is False and op.arg("groups") == 1
    if not plain or not isinstance(source, Ref) or not isinstance(weight, Ref) or op.name in constant:
        return False
    known = all(ref.name in constant for ref in (weight, op.arg("bias")) if isinstance(ref, Ref))
    kinds = graph.type_of(source), graph.type_of(weight), op.type
    dense = all(kind.layout != "strided" for kind in kinds)
    return known and dense and all(len(kind.shape) == 4 and kind.shape[2:] == (1, 1) for kind in kinds)


def _product(graph: Graph, op: Op) -> list[Op]:
    """Rows times W^T plus b, of (images, channels), seen as images of one pixel under the convolution's name."""
    emit = Emitter(graph, f"{op.name}.product", op.module)
    source, weight, bias = op.arg("input"), op.arg("weight"), op.arg("bias")
    assert isinstance(source, Ref)
    assert isinstance(weight, Ref)  # as _of_one_pixel has seen
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
