"""State of a compilation: a graph on its way through Inductor's passes, and analyses that passes share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from costmodel.ir import Graph, Op

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """Device that Inductor compiles for.

    Attributes:
        on_cpu: whether kernels are loops in C++ instead of Triton.
        multiprocessors: streaming multiprocessors of the GPU.
        training: whether it compiles a graph of a training step, for which it chooses layouts by another rule.
    """

    on_cpu: bool
    multiprocessors: int
    training: bool = False


@dataclass(frozen=True, slots=True)
class ChannelsLast:
    """Decision to run convolutions in channels_last.

    Attributes:
        before: graph without any conversion.
        convolutions: names of the convolutions that run in channels_last.
    """

    before: Graph
    convolutions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Compilation:
    """A graph after some passes, with every analysis made of it so far.

    A pass that changes nothing returns the same compilation, so that later passes reuse its analyses.

    Attributes:
        graph: the graph.
        target: device that it is compiled for.
        channels_last: set once convolutions are decided to run in channels_last.
    """

    graph: Graph
    target: Target
    channels_last: ChannelsLast | None = None
    _analyses: dict[Callable[[Compilation], Any], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def analysis(self, analyse: Callable[[Compilation], T]) -> T:
        """Result of a function of this compilation, computed once."""
        if analyse not in self._analyses:
            self._analyses[analyse] = analyse(self)
        result: T = self._analyses[analyse]
        return result

    def with_graph(self, graph: Graph) -> Compilation:
        """This compilation with another graph."""
        return self if graph is self.graph else replace(self, graph=graph)

    def with_ops(self, ops: Sequence[Op]) -> Compilation:
        """This compilation with other operators; the same one if they are the operators of its graph."""
        if len(ops) == len(self.graph.ops) and all(new is old for new, old in zip(ops, self.graph.ops, strict=True)):
            return self
        return replace(self, graph=replace(self.graph, ops=tuple(ops)))

    @property
    def users(self) -> Mapping[str, Sequence[Op]]:
        """Operators that read each value, by name."""
        return self.analysis(_users)

    @property
    def producers(self) -> Mapping[str, Op]:
        """Operators by name."""
        return self.analysis(_producers)


def _users(compilation: Compilation) -> Mapping[str, Sequence[Op]]:
    return compilation.graph.users()


def _producers(compilation: Compilation) -> Mapping[str, Op]:
    return {op.name: op for op in compilation.graph.ops}


Pass = Callable[[Compilation], Compilation]
"""One step of a compilation; it never changes its argument."""
