"""Issue trace of one forward pass: kernel calls in order, and the other work that takes host time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from costmodel.device import ASSUMED_GPU, Device
from costmodel.inductor.cuda_graphs import mutated_inputs, outside_cuda_graphs, unsafe_ops
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import HALF_PRECISION, Calls, Graph, Op, Ref, TensorType, Value
from costmodel.ir import operators as operators_module
from costmodel.ir.op_table import Role
from costmodel.ir.sections import split
from costmodel.kernels.eager_dispatch import as_issued, count_views, kernels_of
from costmodel.kernels.kernel import Kernel, grouping
from costmodel.kernels.matmul_precision import in_tf32


@dataclass(frozen=True, slots=True)
class SectionTrace:
    """Kernels of one compiled graph, or of operators that run eagerly between two.

    Attributes:
        kernels: number of kernels.
        parameters: number of parameters and buffers that the section reads.
        is_compiled: whether it is a compiled graph.
        alone: kernels of a compiled graph that reduce-overhead launches one by one, outside CUDA graphs.
    """

    kernels: int
    parameters: int
    is_compiled: bool = True
    alone: frozenset[int] = frozenset()

    def runs(self) -> list[tuple[range, bool]]:
        """Runs of consecutive kernels, each with whether reduce-overhead replays them as one CUDA graph."""
        replayed = [self.is_compiled and index not in self.alone for index in range(self.kernels)]
        ends = [index for index in range(1, self.kernels) if replayed[index] != replayed[index - 1]]
        bounds = zip((0, *ends), (*ends, self.kernels), strict=True)
        return [(range(start, end), replayed[start] if replayed else self.is_compiled) for start, end in bounds]


@dataclass(frozen=True, slots=True)
class IssueTrace:
    """Work that the host issues in one forward pass.

    Attributes:
        kernels: kernel calls in issue order.
        positions: relative depth of each kernel in the model, from 0 to 1.
        views: number of operators that launch nothing.
        calls: Python calls beside operators that compute; none in compiled code.
        parameters: number of tensors that a compiled call checks and passes (parameters and buffers).
        checked_modules: number of modules with guards of their own; 0 in eager execution.
        footprint: bytes that every pass touches again: parameters, inputs, and the memory that results reuse.
        subgraphs: number of compiled graphs that a call enters, one by one; 0 where Dynamo gives up.
        views_again: number of further kernels that views lead to; each isolated kernel makes all views that lead to it.
        sections: kernels by section of the compiled pass; empty in eager execution.
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
    sections: tuple[SectionTrace, ...] = ()


def issue_traces(graph: Graph, device: Device) -> tuple[IssueTrace, IssueTrace]:
    """Eager and compiled issue trace of a graph on a device."""
    eager, compiled = eager_trace(graph, device.is_cpu), compiled_trace(graph, device.is_cpu, device.multiprocessors)
    if not device.tf32:
        return eager, compiled
    return replace(eager, kernels=in_tf32(eager.kernels)), replace(compiled, kernels=in_tf32(compiled.kernels))


def eager_trace(graph: Graph, on_cpu: bool = False) -> IssueTrace:
    """Issue trace of eager execution."""
    issued = as_issued(graph, on_cpu)
    trace = _trace(graph, kernels_of(issued), count_views(graph), graph.calls)
    made = sum(count_views(kernel.graph) for kernel in trace.kernels)
    return replace(trace, views_again=max(0, made - count_views(issued)))


def compiled_trace(
    graph: Graph, on_cpu: bool = False, multiprocessors: int = ASSUMED_GPU.multiprocessors
) -> IssueTrace:
    """Issue trace under `torch.compile`: each section of the graph's partition is compiled or runs eagerly."""
    found: list[tuple[SectionTrace, tuple[Kernel, ...]]] = []
    mutated, unsafe = mutated_inputs(graph), unsafe_ops(graph)
    for index, (number, part) in enumerate(split(graph)):
        if number is None:
            kernels = kernels_of(as_issued(part, on_cpu))
        else:
            kernels = compiled_kernels(part, on_cpu, multiprocessors)
        origins = [set(map(origin_of, kernel.ops)) for kernel in kernels]
        alone = outside_cuda_graphs(origins, unsafe, mutated.get(index)) if number is not None else frozenset[int]()
        section = SectionTrace(len(kernels), len(_parameters(part)), number is not None, alone)
        found.append((section, kernels))
    kernels = tuple(kernel for _, some in found for kernel in some)
    sections = tuple(section for section, _ in found)
    whole = _trace(graph, kernels, 0, Calls(), graph.checked_modules)
    return replace(whole, subgraphs=sum(section.is_compiled for section in sections), sections=sections)


def _trace(graph: Graph, kernels: tuple[Kernel, ...], views: int, calls: Calls, checked_modules: int = 0) -> IssueTrace:
    places, footprint = positions(graph, kernels), footprint_of(graph)
    return IssueTrace(kernels, places, views, calls, len(_parameters(graph)), footprint, checked_modules)


def _parameters(graph: Graph) -> list[Value]:
    return [value for value in graph.values if value.role == "param"]


def footprint_of(graph: Graph) -> int:
    """Bytes that every pass touches again: parameters, inputs, and twice the largest result that is no view.

    The allocator reuses freed memory, so results share about what the largest operator reads and writes.
    """
    largest = max((op.type.nbytes for op in graph.ops if operators_module.lookup(op).role is not Role.VIEW), default=0)
    return sum(value.type.nbytes for value in graph.values) + 2 * largest


def positions(graph: Graph, kernels: tuple[Kernel, ...]) -> tuple[float, ...]:
    """Relative depth of each kernel, 0 to 1, by its first captured operator's place in the graph."""
    order = {op.name: index for index, op in enumerate(graph.ops)}
    span = max(1, len(graph.ops) - 1)
    found: list[float] = []
    for kernel in kernels:
        places = [order[origin] for origin in map(origin_of, kernel.ops) if origin in order]
        found.append(places[0] / span if places else (found[-1] if found else 0.0))
    return tuple(found)


def origin_of(name: str) -> str:
    """Name of the captured operator that a rewritten one came from: `12` for `12.3`."""
    return name.partition(".")[0]


def dispatch_class(kernel: Kernel) -> str:
    """Class of a call by its host time: `linear.16`, `cat.32.4`, `triton`, ...

    A convolution's includes its size, `conv.nchw.spatial.32.c5.m9`, by which cuDNN chooses one kernel or several.
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
"""Number of parts of a concatenation from which all are of one class."""


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
    """Input channels of a group in powers of two, multiplications in powers of four."""
    weight = _weight_shape(graph, op)
    products = op.type.numel * math.prod(weight[1:])
    return f"c{weight[1].bit_length() - 1}.m{(products.bit_length() - 1) // 2}"


def _weight_shape(graph: Graph, op: Op) -> tuple[int, ...]:
    ref = op.arg("weight")
    return graph.type_of(ref).shape if isinstance(ref, Ref) else (1, 1, 1, 1)


def distinct_fused(kernels: Iterable[Kernel]) -> int:
    """Number of distinct fused kernels, each generated, loaded and called by code of its own."""
    return len({str(kernel.graph) for kernel in kernels if kernel.backend == "triton"})


def main_input(graph: Graph) -> TensorType:
    """Type of the input that reports show: the first of floating point, as token ids may precede images."""
    kinds = [value.type for value in graph.inputs] or [graph.ops[0].type]
    return next((kind for kind in kinds if "float" in kind.dtype), kinds[0])


def layout_of(graph: Graph) -> str:
    """`nhwc` if the inputs or the convolutions are in channels_last, else `nchw`."""
    convolutions = [
        op for op in graph.ops if operators_module.lookup(op).role is Role.EXTERN and len(op.type.shape) == 4
    ]
    images = [value.type for value in graph.inputs if len(value.type.shape) == 4]
    return "nhwc" if any(kind.layout == "nhwc" for kind in (*images, *(op.type for op in convolutions[:1]))) else "nchw"
