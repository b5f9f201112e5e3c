"""Counts of what Dynamo does with a function: graphs, graph breaks, guards, recompilations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx


@dataclass(frozen=True, slots=True)
class DynamoCounts:
    """Counts of one call: graphs, graph breaks, and guards of all graphs."""

    graphs: int
    breaks: int
    guards: int


def explained(function: Callable[..., Any], *args: Any, **kwargs: Any) -> DynamoCounts:
    """Counts of a call, by `torch._dynamo.explain`; nothing is compiled."""
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch._dynamo.explain(function)(*args, **kwargs)
    torch._dynamo.reset()
    return DynamoCounts(found.graph_count, found.graph_break_count, len(found.out_guards or ()))


def compilations(function: Callable[..., Any], calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[int]:
    """Graphs compiled by each call in turn, by a backend that only counts."""
    torch._dynamo.reset()
    compiled: list[int] = []

    def backend(graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled[-1] += 1
        return graph.forward

    wrapped = torch.compile(function, backend=backend)
    with torch.no_grad():
        for args, kwargs in calls:
            compiled.append(0)
            wrapped(*args, **kwargs)
    torch._dynamo.reset()
    return compiled
