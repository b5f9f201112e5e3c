"""Inductor's Triton templates: products and convolutions whose kernels it generates, times and chooses among.

With `max_autotune` Inductor makes a kernel from a template for each of a list of tile sizes, times them and the
library's own, and takes the fastest; what follows elementwise is computed in the template's kernel. A library call and
what would follow it so are one kernel here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel import ops
from costmodel.compile import lowered, schedule
from costmodel.ir import Graph, Op, Ref
from costmodel.kernels import Extractor, Kernel
from costmodel.ops import Role

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
EPILOGUE = frozenset({Role.POINTWISE, Role.VIEW})


def templated_kernels(graph: Graph) -> tuple[Kernel, ...]:
    """The kernel calls of `torch.compile(model, mode="max-autotune")`, in order; those of templates are `template`."""
    main = lowered(graph)
    kernels = schedule(main)
    extractor, users = Extractor(main), main.users()
    position = {op.name: index for index, op in enumerate(main.ops)}
    home = {name: number for number, kernel in enumerate(kernels) for name in kernel.ops}
    made: list[Kernel] = []
    taken: set[int] = set()
    for number, kernel in enumerate(kernels):
        if number in taken:
            continue
        if not has_template(kernel):
            made.append(kernel)
            continue
        readers = _readers(main, users, home, kernel.ops[-1])
        names = kernel.ops
        later = readers.pop() if len(readers) == 1 else None
        if (
            later is not None
            and later not in taken
            and _is_epilogue(kernels[later], main.type_of(Ref(names[-1])).numel)
        ):
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


def _readers(graph: Graph, users: Mapping[str, Sequence[Op]], home: Mapping[str, int], name: str) -> set[int]:
    """The numbers of the kernels that read a value; none if the graph returns it."""
    if any(ref.name == name for ref in graph.outputs):
        return set()
    return {home[op.name] for op in _through_views(users, name) if op.name in home}


def _is_epilogue(kernel: Kernel, size: int) -> bool:
    """Whether a template that makes so many elements could compute a kernel as well: elementwise, one for one."""
    roles = {ops.lookup(op).role for op in kernel.graph.ops}
    computed = {op.type.numel for op in kernel.graph.ops if ops.lookup(op).role is Role.POINTWISE}
    return kernel.backend == "triton" and kernel.launches == 1 and roles <= EPILOGUE and computed <= {size}


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
