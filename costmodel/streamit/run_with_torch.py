"""Run a graph's stream program on real tensors: each filter runs its ATen operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from costmodel.capture.aten_operators import constant, overload
from costmodel.errors import GraphError
from costmodel.ir import Arg, Graph, Op, Ref
from costmodel.ir.passes import drop_dead_code
from costmodel.streamit.interpret import run
from costmodel.streamit.lower import constants, lower
from costmodel.streamit.types import Filter


def run_graph(
    graph: Graph, state: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Run the stream program of a graph; the result is that of the captured module.

    Args:
        graph: from `capture`, for the shapes of the inputs.
        state: parameters and buffers of the module by name.
        inputs: input tensors of one or more forward passes, in order.

    Raises:
        GraphError: a tensor is not in `state`, or torch lacks an operator.
    """
    values = {Ref(value.name): _state(graph, state, value.name) for value in graph.values if value.role == "param"}
    with torch.no_grad():
        for op in constants(drop_dead_code(graph)):
            values |= {Ref(op.name, index): item for index, item in enumerate(call(op, values))}

        def work(stream: Filter, window: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            assert stream.op is not None
            results = call(stream.op, {**values, **dict(zip(stream.reads, window, strict=True))})
            return [results[index] for index in stream.results]

        return tuple(run(lower(graph), inputs, work))


def call(op: Op, values: Mapping[Ref, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Run one operator, and return its results.

    Raises:
        GraphError: torch has no such operator.
    """
    result = overload(op.op)(**{key: _resolved(value, values) for key, value in op.args})
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def _resolved(arg: Arg, values: Mapping[Ref, torch.Tensor]) -> Any:
    """Replace references by tensors, and names of torch's constants by these."""
    if isinstance(arg, Ref):
        return values[arg]
    return [_resolved(item, values) for item in arg] if isinstance(arg, tuple) else constant(arg)


def _state(graph: Graph, state: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in state:
        raise GraphError(f"{graph.name}: %{name} is not a parameter or buffer of the module, so its values are unknown")
    return state[name]
