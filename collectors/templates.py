"""Inductor's Triton templates: products and convolutions whose kernels it generates, times and chooses among.

With `max_autotune` Inductor makes a kernel from a template for each of a list of tile sizes, times them and the
library's own, and takes the fastest; what follows elementwise is computed in the template's kernel. A library call and
what would follow it so are one kernel here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel import ops
from costmodel.attention import unrolled
from costmodel.compile import schedule
from costmodel.decompose import decompose
from costmodel.ir import Graph, Op, Ref
from costmodel.kernels import Extractor, Kernel
from costmodel.layouts import lay_out
from costmodel.ops import Role

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
EPILOGUE = frozenset({Role.POINTWISE, Role.VIEW})


def templated_kernels(graph: Graph) -> tuple[Kernel, ...]:
    """The kernel calls of `torch.compile(model, mode="max-autotune")`, in order; those of templates are `template`."""
    lowered = lay_out(decompose(unrolled(graph)))
    kernels = schedule(lowered)
    extractor = Extractor(lowered)
    position = {op.name: index for index, op in enumerate(lowered.ops)}
    made: list[Kernel] = []
    taken: set[int] = set()
    for number, kernel in enumerate(kernels):
        if number in taken:
            continue
        if not has_template(kernel):
            made.append(kernel)
            continue
        later = _epilogue(lowered, kernels, number, taken)
        names = kernel.ops
        if later is not None:
            taken.add(later)
            names = tuple(sorted((*names, *kernels[later].ops), key=position.__getitem__))
        made.append(Kernel("template", extractor.extract(names), names))
    return tuple(made)


def has_template(kernel: Kernel) -> bool:
    """Whether Inductor has a template for a library call: products, and dense two-dimensional convolutions."""
    op = kernel.anchor
    computing = [one for one in kernel.graph.ops if ops.lookup(one).role is not Role.VIEW]
    if kernel.backend != "aten" or len(computing) != 1:
        return False
    if op.base in PRODUCTS:
        return True
    dense = op.arg("groups", 1) == 1 and op.arg("transposed") is False
    return op.base == "convolution" and len(op.type.shape) == 4 and dense


def _epilogue(graph: Graph, kernels: Sequence[Kernel], number: int, taken: set[int]) -> int | None:
    """The number of the kernel that a template's could compute as well: elementwise, and alone in reading it."""
    result = kernels[number].ops[-1]
    users = graph.users()
    if any(ref.name == result for ref in graph.outputs):
        return None
    home = {name: index for index, kernel in enumerate(kernels) for name in kernel.ops}
    readers = {home[op.name] for op in _through_views(users, result) if op.name in home}
    if len(readers) != 1:
        return None
    later = readers.pop()
    kernel = kernels[later]
    whole = kernel.backend == "triton" and kernel.launches == 1 and later not in taken
    plain = all(ops.lookup(op).role in EPILOGUE for op in kernel.graph.ops)
    size = graph.type_of(Ref(result)).numel
    computed = [op.type.numel for op in kernel.graph.ops if ops.lookup(op).role is Role.POINTWISE]
    return later if whole and plain and all(numel == size for numel in computed) else None


def _through_views(users: Mapping[str, Sequence[Op]], name: str) -> list[Op]:
    """What reads a value, itself or through views; the views too."""
    found: list[Op] = []
    pending = [name]
    while pending:
        for op in users[pending.pop()]:
            found.append(op)
            if ops.lookup(op).role is Role.VIEW:
                pending.append(op.name)
    return found
