"""Cases from real models: every kernel of their eager and compiled forward passes, each once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from collectors.workloads.cases import Runner, UnitCase
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import Graph, operators
from costmodel.ir.op_table import Role
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel


def harvest(graph: Graph, source: str, device: str = "cuda") -> Iterator[UnitCase]:
    """The cases of one model: single operators as eager runs them, library calls and fused groups as Inductor does.

    Args:
        graph: the captured model.
        source: what the cases say they were taken from.
        device: where they will be measured; a CPU has no cuDNN.
    """
    on_cpu = device == "cpu"
    yield from _cases(graph, (*eager_kernels(graph, on_cpu), *compiled_kernels(graph, on_cpu)), source)


def _cases(graph: Graph, kernels: Iterable[Kernel], source: str) -> Iterator[UnitCase]:
    """Kernels of a graph as cases, those that are worth measuring, at their positions."""
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
    """Not for a kernel that makes nothing of nothing, or that writes into a place that only its model has."""
    roles = {operators.lookup(op).role for op in kernel.graph.ops}
    return bool(kernel.graph.values) and Role.JOINED not in roles and not roles <= {Role.VIEW, Role.SOURCE}
