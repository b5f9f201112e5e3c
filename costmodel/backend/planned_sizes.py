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
from torch._guards import CompileContext
from torch.fx.experimental.symbolic_shapes import sym_or


@dataclass(frozen=True, slots=True)
class TracedCall:
    """Call of a graph that Dynamo traced.

    Attributes:
        modes: modes of torch, and type and device of each tensor.
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
        kinds = tuple((name, tensor.dtype, tensor.device) for name, tensor in sorted(tensors.items()))
        cast = tuple(torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) for device in ("cuda", "cpu"))
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), cast, kinds
        return cls(modes, {name: tuple(tensor.shape) for name, tensor in tensors.items()})


_planned: dict[int, list[TracedCall]] = {}
"""Calls with a plan, by the number of their code object, of which there are new ones after a reset of Dynamo."""


def remember_plan(gm: fx.GraphModule, values: Sequence[Any]) -> None:
    """Remember that a graph is run by a plan for the sizes of a call."""
    frame, number = _place()
    if number == 0:
        _planned.pop(frame, None)
    _planned.setdefault(frame, []).append(TracedCall.of(gm, values))


def leave_out_planned_sizes(gm: fx.GraphModule, values: Sequence[Any]) -> None:
    """Make guards of a dynamic graph that refuse calls of sizes for which its code has plans.

    Args:
        gm: dynamic graph.
        values: those of the traced call, which has none.
    """
    now = TracedCall.of(gm, values)
    frame, number = _place()
    for planned in _planned.get(frame, ()) if number else ():
        if planned.modes == now.modes and planned.shapes != now.shapes:
            bool(_differs_from(planned, gm))  # reading a relation between symbols is what makes a guard


def _differs_from(planned: TracedCall, gm: fx.GraphModule) -> bool | torch.SymBool:
    """Whether a call of a graph has other sizes than a planned call."""
    sizes = {node.name: node.meta["example_value"].shape for node in gm.graph.find_nodes(op="placeholder")
             if node.name in planned.shapes}
    return sym_or(*(a != b for name, shape in sizes.items() for a, b in zip(shape, planned.shapes[name], strict=True)))


def _place() -> tuple[int, int]:
    """Number of the code object that Dynamo compiles, and of the graphs it has made of it; -1 outside of Dynamo."""
    found = CompileContext.current_compile_id()
    if found is None or found.frame_id is None:
        return -1, 0
    return found.frame_id, found.frame_compile_id or 0
