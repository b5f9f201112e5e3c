"""Dynamo's graph -> nn.Module with its parameters, which takes the graph's other inputs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

_AUTOCAST = ("cuda", "cpu")
STATIC = "_dynamo_static_input_type"
"""Mark of torch on inputs that keep their address: parameters and buffers."""


def without_metadata(gm: fx.GraphModule) -> fx.GraphModule:
    """Copy a graph without Dynamo's fake tensors and sources; parameters and submodules are shared."""
    graph = fx.Graph()
    result = graph.graph_copy(gm.graph, {})
    graph.output(result)
    for node in graph.nodes:
        node.meta = {}
    return fx.GraphModule(gm, graph)


@dataclass(frozen=True, slots=True)
class Slots:
    """Positions of a graph's arguments: parameters and buffers, and inputs proper."""

    static: tuple[int, ...]
    inputs: tuple[int, ...]

    @classmethod
    def of(cls, gm: fx.GraphModule, arguments: Sequence[Any]) -> Slots:
        """Tell parameters and buffers, which torch marks as static, from inputs proper."""
        nodes = gm.graph.find_nodes(op="placeholder")
        static = tuple(
            index
            for index, (node, value) in enumerate(zip(nodes, arguments, strict=True))
            if isinstance(value, nn.Parameter) or node.meta.get("tensor_dict", {}).get(STATIC)
        )
        return cls(static, tuple(index for index in range(len(arguments)) if index not in set(static)))


@dataclass(frozen=True, slots=True)
class Autocast:
    """Regions of autocast around a graph when Dynamo traced it, by kind of device: dtype and cache."""

    regions: tuple[tuple[str, torch.dtype], ...]

    @classmethod
    def current(cls) -> Autocast:
        """Regions that the caller is in."""
        active = (kind for kind in _AUTOCAST if torch.is_autocast_enabled(kind))
        return cls(tuple((kind, torch.get_autocast_dtype(kind)) for kind in active))

    def entered(self, enabled: bool) -> ExitStack:
        """Context of these regions, enabled or disabled."""
        around = ExitStack()
        for kind, dtype in self.regions:
            around.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
        return around


class GraphCall(nn.Module):
    """Graph with parameters of its own, which share the memory of those that Dynamo passes.

    A parameter that is freed elsewhere is freed as soon as this module is.

    Args:
        gm: graph, without metadata.
        slots: positions of its arguments.
        arguments: arguments of a call.
        autocast: regions to run in.
    """

    def __init__(self, gm: fx.GraphModule, slots: Slots, arguments: Sequence[Any], autocast: Autocast) -> None:
        super().__init__()
        self.graph_module = gm
        self._slots, self._autocast, self._count = slots, autocast, len(arguments)
        self._names = tuple(f"argument_{index}" for index in slots.static)
        for name, index in zip(self._names, slots.static, strict=True):
            tensor = arguments[index]
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, nn.Parameter(tensor.detach(), tensor.requires_grad))
            else:
                self.register_buffer(name, tensor.detach())
        self.training = gm.training = False  # not .eval(): submodules may be the user's

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Run the graph operator by operator."""
        arguments: list[Any] = [None] * self._count
        for index, value in zip(self._slots.inputs, inputs, strict=True):
            arguments[index] = value
        for index, name in zip(self._slots.static, self._names, strict=True):
            arguments[index] = getattr(self, name)
        if not self._autocast.regions:
            return self.graph_module(*arguments)
        with self._autocast.entered(True):
            return self.graph_module(*arguments)
