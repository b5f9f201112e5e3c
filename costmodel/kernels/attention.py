"""Decomposition of multi-head attention in inference: by ATen in eager execution, and by Dynamo.

In evaluation mode without gradients nn.MultiheadAttention is one operator, `_native_multi_head_attention`. On a GPU it
runs two linear layers and fused attention (ATen's attention.cu). Dynamo never takes that path: it traces
`multi_head_attention_forward`, which puts the sequence first and splits query, key and value by copies. Where no fused
attention kernel applies, attention is two matmuls around `_safe_softmax`, which ATen runs as six operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costmodel.ir import Arg, Graph, Op, Ref, TensorType
from costmodel.ir.builder import Site, rewritten

NATIVE = "_native_multi_head_attention"


def fast_path(graph: Graph) -> Graph:
    """Replace multi-head attention and `_safe_softmax` by the operators that ATen runs on a GPU."""
    return rewritten(graph, {NATIVE: _fast, "_safe_softmax": _guarded_softmax})


def unrolled(graph: Graph) -> Graph:
    """Replace multi-head attention by the operators that Dynamo traces."""
    return rewritten(graph, {NATIVE: _unrolled})


def _fast(site: Site) -> list[Op]:
    batch, length, width, heads = _sizes(site)
    dtype = site.op.type.dtype
    packed = _linear(site, _ref(site, "query"), (batch, length, width), "qkv", 3 * width)
    parts = []
    for index in range(3):
        part = TensorType(dtype, (batch, length, width), "strided")
        chunk = site.add("slice.Tensor", part, self=packed, dim=-1, start=index * width, end=(index + 1) * width)
        split = TensorType(dtype, (batch, length, heads, width // heads), "strided")
        view = site.add("view", split, self=chunk, size=split.shape)
        parts.append(_transposed(site, view, split, (1, 2)))
    attended = _attention(site, parts, TensorType(dtype, (batch, heads, length, width // heads), "strided"))
    together = TensorType(dtype, (batch, length, heads, width // heads))
    back = site.add("transpose.int", together, self=attended, dim0=1, dim1=2)
    joined = site.add("view", TensorType(dtype, (batch, length, width)), self=back, size=(batch, length, width))
    made = _matmul(site, joined, (batch * length, width), "proj", width)
    return site.finish("view", self=made, size=(batch, length, width))


def _unrolled(site: Site) -> list[Op]:
    batch, length, width, heads = _sizes(site)
    dtype, size = site.op.type.dtype, width // heads
    first = TensorType(dtype, (length, batch, width))
    moved = _transposed(site, _ref(site, "query"), replace(site.op.type, layout="nchw"), (0, 1))
    query = site.add("clone", first, self=moved, memory_format="torch.contiguous_format")
    flat = site.add("view", TensorType(dtype, (length * batch, width)), self=query, size=(length * batch, width))
    weight = _weight(site, "qkv", width, 3 * width)
    product = site.add("mm", TensorType(dtype, (length * batch, 3 * width)), self=flat, mat2=weight)
    packed = TensorType(dtype, (length, batch, 3 * width))
    view = site.add("view", packed, self=product, size=packed.shape)
    biased = site.add("add.Tensor", packed, self=view, other=_ref(site, "qkv_bias"))
    split = TensorType(dtype, (1, length, batch, 3, width))
    apart = site.add("view", split, self=biased, size=split.shape)
    turned = TensorType(dtype, (3, length, batch, 1, width), "strided")
    front = site.add("transpose.int", turned, self=apart, dim0=0, dim1=-2)
    three = TensorType(dtype, (3, length, batch, width))
    squeezed = site.add("squeeze.dim", replace(three, layout="strided"), self=front, dim=-2)
    copies = site.add("clone", three, self=squeezed, memory_format="torch.contiguous_format")
    parts = []
    for index in range(3):
        part = site.add("select.int", first, self=copies, dim=0, index=index)
        by_head = TensorType(dtype, (length, batch * heads, size))
        view = site.add("view", by_head, self=part, size=by_head.shape)
        head_first = _transposed(site, view, by_head, (0, 1))
        shape = (batch, heads, length, size)
        parts.append(site.add("view", TensorType(dtype, shape, "strided"), self=head_first, size=shape))
    attended = _attention(site, parts, TensorType(dtype, (batch, heads, length, size), "strided"))
    sequence_first = TensorType(dtype, (length, batch, heads, size))
    seen = sequence_first if batch == 1 else replace(sequence_first, layout="strided")
    together = site.add("permute", seen, self=attended, dims=(2, 0, 1, 3))
    if seen.layout == "strided":
        together = site.add("clone", sequence_first, self=together, memory_format="torch.contiguous_format")
    made = _matmul(site, together, (length * batch, width), "proj", width)
    rows = site.add("view", first, self=made, size=first.shape)
    last = site.finish("transpose.int", self=rows, dim0=1, dim1=0)
    return [*last[:-1], replace(last[-1], types=(replace(site.op.type, layout="strided"),))]


def _guarded_softmax(site: Site) -> list[Op]:
    """Softmax that is zero where a whole row is minus infinity (ATen's attention.cpp)."""
    kind, dim = site.op.type, site.op.arg("dim", -1)
    assert isinstance(dim, int)
    scalar, flags = TensorType(kind.dtype, ()), replace(kind, dtype="bool")
    row = list(kind.shape)
    row[dim] = 1
    source = _ref(site, "self")
    powers = site.add("_softmax", kind, self=source, dim=dim, half_to_float=False)
    lowest = site.add("scalar_tensor", scalar, s=float("-inf"), dtype=f"torch.{kind.dtype}")
    masked = site.add("eq.Tensor", flags, self=source, other=lowest)
    empty = site.add("all.dim", TensorType("bool", tuple(row)), self=masked, dim=dim, keepdim=True)
    zero = site.add("scalar_tensor", scalar, s=0.0, dtype=f"torch.{kind.dtype}")
    return site.finish("where.self", condition=empty, self=zero, other=powers)


def _sizes(site: Site) -> tuple[int, int, int, int]:
    """Batch, length of the sequence, width of the embedding, heads."""
    batch, length, width = site.op.type.shape
    heads = site.op.arg("num_head")
    assert isinstance(heads, int)
    return batch, length, width, heads


def _ref(site: Site, name: str) -> Ref:
    ref = site.ref(name)
    assert ref is not None  # capture records the operator only with all its weights
    return ref


def _transposed(site: Site, ref: Ref, kind: TensorType, dims: tuple[int, int]) -> Ref:
    shape = list(kind.shape)
    shape[dims[0]], shape[dims[1]] = shape[dims[1]], shape[dims[0]]
    turned = TensorType(kind.dtype, tuple(shape), "strided")
    return site.add("transpose.int", turned, self=ref, dim0=dims[0], dim1=dims[1])


def _weight(site: Site, name: str, inner: int, columns: int) -> Ref:
    kind = TensorType(site.op.type.dtype, (inner, columns), "strided")
    return site.add("t", kind, self=_ref(site, f"{name}_weight"))


def _matmul(site: Site, ref: Ref, shape: tuple[int, int], name: str, columns: int) -> Ref:
    """Linear layer on rows: `addmm`."""
    dtype = site.op.type.dtype
    rows = site.add("view", TensorType(dtype, shape), self=ref, size=shape)
    args: dict[str, Arg] = {"self": _ref(site, f"{name}_bias"), "mat1": rows}
    kind = TensorType(dtype, (shape[0], columns))
    return site.add("addmm", kind, **args, mat2=_weight(site, name, shape[1], columns))


def _linear(site: Site, ref: Ref, shape: tuple[int, int, int], name: str, columns: int) -> Ref:
    batch, length, inner = shape
    made = _matmul(site, ref, (batch * length, inner), name, columns)
    kind = TensorType(site.op.type.dtype, (batch, length, columns))
    return site.add("view", kind, self=made, size=kind.shape)


def _attention(site: Site, parts: Sequence[Ref], kind: TensorType) -> Ref:
    query, key, value = parts
    options: dict[str, Arg] = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False}
    return site.add("scaled_dot_product_attention", kind, query=query, key=key, value=value, **options)
