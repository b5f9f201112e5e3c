"""Cases from models: the kernels of their eager and compiled forward passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from collectors.workloads.cases import Runner, UnitCase
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import Graph, operators
from costmodel.ir.op_table import Role
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel


def harvest(graph: Graph, source: str, device: str = "cuda") -> Iterator[UnitCase]:
    """Cases of one model: the kernels of eager execution, and the library calls and fused kernels of torch.compile.

    Args:
        graph: captured model.
        source: `source` of the cases.
        device: device that will measure them; a CPU has no cuDNN.
    """
    on_cpu = device == "cpu"
    yield from _cases(graph, (*eager_kernels(graph, on_cpu), *compiled_kernels(graph, on_cpu)), source)


def _cases(graph: Graph, kernels: Iterable[Kernel], source: str) -> Iterator[UnitCase]:
    """Kernels of a graph that are worth measuring, as cases with their relative depth."""
    order = {op.name: index for index, op in enumerate(graph.ops)}
    span = max(1, len(graph.ops) - 1)
    position = 0.0
    for kernel in kernels:
        places = [order[name.partition(".")[0]] for name in kernel.ops if name.partition(".")[0] in order]
        position = round(places[0] / span, 3) if places else position
        if worth_measuring(kernel):
            runner: Runner = "inductor" if kernel.backend == "triton" else "aten"
            yield UnitCase(str(kernel.graph), runner, position=position, source=source)


def worth_measuring(kernel: Kernel) -> bool:
    """Whether a kernel has inputs, does more than views and creation, and does not write into a tensor of its model."""
    roles = {operators.lookup(op).role for op in kernel.graph.ops}
    return bool(kernel.graph.values) and Role.JOINED not in roles and not roles <= {Role.VIEW, Role.SOURCE}
