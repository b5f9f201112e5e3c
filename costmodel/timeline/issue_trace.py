"""What the host issues in one forward pass: kernel calls in order, and what else costs Python its time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import HALF_PRECISION, Calls, Graph, Op, Ref, TensorType
from costmodel.ir import operators as operators_module
from costmodel.ir.op_table import Role
from costmodel.kernels.eager_dispatch import as_issued, count_views, kernels_of
from costmodel.kernels.kernel import Kernel, grouping


@dataclass(frozen=True, slots=True)
class IssueTrace:
    """One way of running a model.

    Attributes:
        kernels: calls in issue order.
        positions: where in the model each lies, from 0 to 1.
        views: operators that launch nothing.
        calls: what Python calls beside operators that compute; nothing where a compiler has flattened it.
        parameters: tensors that a compiled call checks and passes (parameters and buffers).
        checked_modules: modules that a compiled call checks one by one; 0 where nothing is compiled.
        footprint: bytes that every pass comes back to: parameters, inputs, and the memory that results take turns in.
        subgraphs: into how many graphs the pass was cut, each of which is entered by itself.
        views_again: how often a view leads to a further kernel: isolated, each kernel makes all that lead to it.
    """

    kernels: tuple[Kernel, ...]
    positions: tuple[float, ...]
    views: int
    calls: Calls
    parameters: int
    footprint: int
    checked_modules: int = 0
    subgraphs: int = 1
    views_again: int = 0


def eager_trace(graph: Graph, on_cpu: bool = False) -> IssueTrace:
    """Operator after operator, as written."""
    issued = as_issued(graph, on_cpu)
    trace = _program(graph, kernels_of(issued), count_views(graph), graph.calls)
    made = sum(count_views(kernel.graph) for kernel in trace.kernels)
    return replace(trace, views_again=max(0, made - count_views(issued)))


def compiled_trace(graph: Graph, on_cpu: bool = False) -> IssueTrace:
    """As `torch.compile` runs it."""
    whole = _program(graph, compiled_kernels(graph, on_cpu), 0, Calls(), graph.checked_modules)
    return replace(whole, subgraphs=subgraph_count(graph))


def _program(
    graph: Graph, kernels: tuple[Kernel, ...], views: int, calls: Calls, checked_modules: int = 0
) -> IssueTrace:
    params = [value for value in graph.values if value.role == "param"]
    places, footprint = positions(graph, kernels), footprint_of(graph)
    return IssueTrace(kernels, places, views, calls, len(params), footprint, checked_modules)


def subgraph_count(graph: Graph) -> int:
    """Into how many graphs torch.compile is taken to cut a pass; 1 for a whole one.

    It goes on in a new graph after every cut, in the module whose call was cut and in all that it was called from: none
    of them can be part of another's graph. A sequence of modules calls them in a loop, which is not compiled.
    """
    cuts = [item for item in graph.breaks if item.kind == "cut"]
    paths = [item.module.split(".") if item.module else [item.source] for item in cuts]
    calls = {tuple(path[:depth]) for path in paths for depth in range(1, len(path) + 1)}
    after = Counter(call[:-1] for call in calls if not call[-1].isdigit())
    return max(1, sum(count + 1 for count in after.values()))


def footprint_of(graph: Graph) -> int:
    """Bytes that every pass comes back to: parameters, inputs, and twice the largest result of what is no view.

    An allocator gives freed memory out again, so that results take turns in what the largest operator reads and writes.
    """
    largest = max((op.type.nbytes for op in graph.ops if operators_module.lookup(op).role is not Role.VIEW), default=0)
    return sum(value.type.nbytes for value in graph.values) + 2 * largest


def positions(graph: Graph, kernels: tuple[Kernel, ...]) -> tuple[float, ...]:
    """Each kernel's relative depth: where its first operator, or that one's origin, stands in the graph; 0 to 1."""
    order = {op.name: index for index, op in enumerate(graph.ops)}
    span = max(1, len(graph.ops) - 1)
    found: list[float] = []
    for kernel in kernels:
        places = [order[origin] for origin in map(origin_of, kernel.ops) if origin in order]
        found.append(places[0] / span if places else (found[-1] if found else 0.0))
    return tuple(found)


def origin_of(name: str) -> str:
    """The operator that one made by a rewrite came from: `12` of `12.3`."""
    return name.partition(".")[0]


def dispatch_class(kernel: Kernel) -> str:
    """Which kind of call it is to the host, from coarse to fine: `linear.16`, `cat.32.4`, `triton`, ...

    Of a convolution it is also its size, `conv.nchw.spatial.32.c5.m9`: by that cuDNN chooses what it launches, one
    kernel or several.
    """
    if kernel.backend == "triton":
        return "triton"
    anchor = kernel.anchor
    if anchor.base == "convolution":
        known = f"conv.{_layout(kernel.graph, anchor)}.{_shape_class(kernel.graph, anchor)}.{_width(anchor)}"
        return f"{known}.{_size_class(kernel.graph, anchor)}"
    known = f"{operators_module.lookup(anchor).kind}.{_width(anchor)}"
    if anchor.base in ("cat", "stack"):
        return f"{known}.{min(len(anchor.refs()), MANY_PARTS)}"
    if anchor.base == "native_batch_norm":
        return f"{known}.native"
    return known


MANY_PARTS = 8
"""Concatenations of more parts are not told apart."""


def _width(op: Op) -> str:
    return "16" if op.type.dtype in HALF_PRECISION else "32"


def _layout(graph: Graph, op: Op) -> str:
    source = op.arg("input")
    return "nhwc" if isinstance(source, Ref) and graph.type_of(source).layout == "nhwc" else "nchw"


def _shape_class(graph: Graph, op: Op) -> str:
    weight = _weight_shape(graph, op)
    groups = op.arg("groups", 1)
    bias = "+bias" if isinstance(op.arg("bias"), Ref) else ""
    if isinstance(groups, int) and groups > 1:
        return grouping(groups, weight[1], op.type.shape[1] // groups) + bias
    if math.prod(weight[2:]) > 1:
        return "spatial" + bias
    return ("one_pixel" if math.prod(op.type.shape[2:]) == 1 else "pointwise") + bias


def _size_class(graph: Graph, op: Op) -> str:
    """Powers of two of the channels that a group reads, powers of four of the products."""
    weight = _weight_shape(graph, op)
    products = op.type.numel * math.prod(weight[1:])
    return f"c{weight[1].bit_length() - 1}.m{(products.bit_length() - 1) // 2}"


def _weight_shape(graph: Graph, op: Op) -> tuple[int, ...]:
    ref = op.arg("weight")
    return graph.type_of(ref).shape if isinstance(ref, Ref) else (1, 1, 1, 1)


def compile_counts(kernels: Iterable[Kernel]) -> dict[str, float]:
    """What compile time is a sum of: operators to trace and lower, distinct fused kernels to generate."""
    kernels = tuple(kernels)
    operators = sum(len(kernel.graph.ops) for kernel in kernels)
    return {"operator": operators, "distinct_kernel": distinct_fused(kernels), "start": 1.0}


def distinct_fused(kernels: Iterable[Kernel]) -> int:
    """How many fused kernels there are that are not alike: each is generated, loaded and called by code of its own."""
    return len({str(kernel.graph) for kernel in kernels if kernel.backend == "triton"})


def main_input(graph: Graph) -> TensorType:
    """What reports call the input: the first of floating point, as images are; token ids may come before."""
    kinds = [value.type for value in graph.inputs] or [graph.ops[0].type]
    return next((kind for kind in kinds if "float" in kind.dtype), kinds[0])


def layout_of(graph: Graph) -> str:
    """`nhwc` if the inputs, or the weights of convolutions, lie channels last; else `nchw`."""
    convolutions = [
        op for op in graph.ops if operators_module.lookup(op).role is Role.EXTERN and len(op.type.shape) == 4
    ]
    images = [value.type for value in graph.inputs if len(value.type.shape) == 4]
    return "nhwc" if any(kind.layout == "nhwc" for kind in (*images, *(op.type for op in convolutions[:1]))) else "nchw"
