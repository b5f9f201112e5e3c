"""ir.Graph -> torch.fx module of ATen calls, to run, measure or compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from costmodel.capture.aten_operators import constant, overload
from costmodel.ir import Arg, Graph, Op, Ref


def build_module(graph: Graph, device: torch.device | None = None) -> fx.GraphModule:
    """Build an FX module of ATen calls; inputs and parameters of the graph are positional arguments, in order.

    Args:
        graph: graph to convert.
        device: device of tensors that factories such as `arange` make, which a graph does not record; None for torch's
            default device.

    Raises:
        GraphError: torch has no such ATen operator.
    """
    made = fx.Graph()
    nodes: dict[str, fx.Node] = {value.name: made.placeholder(f"v{i}") for i, value in enumerate(graph.values)}

    def resolve(arg: Arg) -> Any:
        if isinstance(arg, Ref):
            several = arg.name in several_results
            return made.call_function(_getitem, (nodes[arg.name], arg.index)) if several else nodes[arg.name]
        if isinstance(arg, tuple):
            return [resolve(item) for item in arg]
        return constant(arg)

    several_results = {op.name for op in graph.ops if _returns_several(op.op)}
    for op in graph.ops:
        arguments = {key: resolve(value) for key, value in op.args}
        if device is not None and _is_factory(op):
            arguments["device"] = device
        nodes[op.name] = made.call_function(overload(op.op), (), arguments)
    made.output(tuple(resolve(ref) for ref in graph.outputs))
    return fx.GraphModule({}, made)


def _getitem(values: Sequence[Any], index: int) -> Any:
    return values[index]


def _returns_several(name: str) -> bool:
    returns = overload(name)._schema.returns
    return len(returns) > 1 or str(returns[0].type) == "List[Tensor]"


def _is_factory(op: Op) -> bool:
    """Whether an operator makes a tensor from numbers alone, as `arange` does; `new_zeros` reads a tensor."""
    return not any(op.refs()) and any(argument.name == "device" for argument in overload(op.op)._schema.arguments)
