"""Sizes for which the code of a graph has plans, left out of a dynamic graph by guards.

Of the graphs whose guards hold, Dynamo runs the one that ran last, so a dynamic graph would keep calls from the plans
made for them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import sym_or

from costmodel.backend.dynamic_sizes import place_of_graph
from costmodel.execution.torch_settings import active_autocasts


@dataclass(frozen=True, slots=True)
class TracedCall:
    """Call of a graph that Dynamo traced.

    Attributes:
        modes: modes of torch, and type, device and number of dimensions of each tensor.
        shapes: shape of each tensor by the name of its node.
    """

    modes: tuple[Hashable, ...]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, gm: fx.GraphModule, values: Sequence[Any]) -> TracedCall:
        """Call of a graph with some values."""
        nodes = gm.graph.find_nodes(op="placeholder")
        tensors = {
            node.name: value for node, value in zip(nodes, values, strict=True) if isinstance(value, torch.Tensor)
        }
        kinds = tuple((name, tensor.dtype, tensor.device, tensor.dim()) for name, tensor in sorted(tensors.items()))
        casts = tuple((device_type, torch.get_autocast_dtype(device_type)) for device_type in active_autocasts())
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), casts, kinds
        return cls(modes, {name: tuple(tensor.shape) for name, tensor in tensors.items()})


_planned: dict[int, list[TracedCall]] = {}
"""Calls with a plan, by the number of their code object."""


def begin_code() -> None:
    """Forget the code whose number a new one has got since a reset of Dynamo, if the present graph is its first."""
    frame, number = place_of_graph()
    if number == 0:
        _planned.pop(frame, None)


def remember_plan(gm: fx.GraphModule, values: Sequence[Any]) -> None:
    """Remember that a graph is run by a plan for the sizes of a call."""
    frame, _ = place_of_graph()
    _planned.setdefault(frame, []).append(TracedCall.of(gm, values))


def leave_out_planned_sizes(gm: fx.GraphModule, values: Sequence[Any]) -> None:
    """Make guards of a dynamic graph that refuse calls of sizes for which its code has plans.

    Args:
        gm: dynamic graph.
        values: those of the traced call, which has none.
    """
    now = TracedCall.of(gm, values)
    frame, _ = place_of_graph()
    for planned in _planned.get(frame, ()):
        if planned.modes == now.modes and planned.shapes != now.shapes:
            bool(_differs_from(planned, gm))  # reading a relation between symbols is what makes a guard


def _differs_from(planned: TracedCall, gm: fx.GraphModule) -> bool | torch.SymBool:
    """Whether a call of a graph has other sizes than a planned call."""
    nodes = {node.name: node for node in gm.graph.find_nodes(op="placeholder")}
    return sym_or(
        *(
            one != other
            for name, shape in planned.shapes.items()
            for one, other in zip(nodes[name].meta["example_value"].shape, shape, strict=True)
        )
    )
