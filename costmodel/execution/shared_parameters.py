"""Parameters that were prepared for one program and serve others, such as those for further sizes of inputs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch

from costmodel.ir import Graph


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Result of one preparation, for as long as a program uses it.

    Attributes:
        results: computed parameters.
        sources: memory of the parameters that they were computed from, at whose address nothing else can lie then.
    """

    results: tuple[weakref.ref[torch.Tensor], ...]
    sources: tuple[torch.UntypedStorage, ...]

    def alive(self) -> list[torch.Tensor] | None:
        """The parameters; None if a program was dropped and some are gone."""
        found = [tensor for ref in self.results if (tensor := ref()) is not None]
        return found if len(found) == len(self.results) else None


_prepared: dict[Hashable, Prepared] = {}


def prepare_once(
    graph: Graph, given: Sequence[torch.Tensor], device: torch.device, run: Callable[[], Sequence[torch.Tensor]]
) -> Sequence[torch.Tensor]:
    """Results of a preparation, computed unless a living program has those of the same values.

    Args:
        graph: the preparation.
        given: its operands, in order.
        device: device of its results.
        run: computes them.
    """
    if not graph.outputs or any(tensor.is_inference() or tensor.layout is not torch.strided for tensor in given):
        return run()  # a tensor of inference mode does not count its changes
    facts = tuple((tensor.data_ptr(), tensor._version, tensor.shape, tensor.stride(), tensor.dtype) for tensor in given)
    key = str(replace(graph, name="_")), device, facts
    if (known := _prepared.get(key)) is not None and (found := known.alive()) is not None:
        return found
    made = run()

    def forget(_dead: object) -> None:
        if _prepared.get(key) is entry:
            del _prepared[key]

    sources = tuple(tensor.untyped_storage() for tensor in given)
    entry = _prepared[key] = Prepared(tuple(weakref.ref(tensor, forget) for tensor in made), sources)
    return made
