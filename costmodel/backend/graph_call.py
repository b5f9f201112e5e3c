"""Dynamo's graph -> nn.Module with its parameters, which takes the graph's other tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

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
    """Positions of a graph's arguments.

    Attributes:
        static: parameters and buffers.
        inputs: inputs proper.
        sizes: sizes that Dynamo passes as numbers, with their values in the traced call.
    """

    static: tuple[int, ...]
    inputs: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, gm: fx.GraphModule, arguments: Sequence[Any]) -> Slots:
        """Tell parameters and buffers, which torch marks as static, from inputs proper and sizes."""
        nodes = gm.graph.find_nodes(op="placeholder")
        static = tuple(
            index
            for index, (node, value) in enumerate(zip(nodes, arguments, strict=True))
            if isinstance(value, nn.Parameter) or node.meta.get("tensor_dict", {}).get(STATIC)
        )
        sizes = tuple((index, value) for index, value in enumerate(arguments) if isinstance(value, int))
        others = {*static, *(index for index, _ in sizes)}
        return cls(static, tuple(index for index in range(len(arguments)) if index not in others), sizes)


class GraphCall(nn.Module):
    """Graph with parameters of its own, which share the memory of those that Dynamo passes.

    A parameter that is freed elsewhere is freed as soon as this module is.

    Args:
        gm: graph, without metadata.
        slots: positions of its arguments.
        arguments: arguments of a call.
    """

    def __init__(self, gm: fx.GraphModule, slots: Slots, arguments: Sequence[Any]) -> None:
        super().__init__()
        self.graph_module = gm
        self._slots, self._count = slots, len(arguments)
        self._names = tuple(f"parameter_{number}" for number in range(len(slots.static)))  # as in graphs of other sizes
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
        for index, size in self._slots.sizes:
            arguments[index] = size
        for index, value in zip(self._slots.inputs, inputs, strict=True):
            arguments[index] = value
        for index, name in zip(self._slots.static, self._names, strict=True):
            arguments[index] = getattr(self, name)
        return self.graph_module.forward(*arguments)
