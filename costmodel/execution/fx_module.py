"""ir.Graph -> torch.fx module of ATen calls: what is run, measured and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from costmodel.errors import GraphError
from costmodel.ir import Arg, Graph, Op, Ref


def build_module(graph: Graph, device: torch.device | None = None) -> fx.GraphModule:
    """The graph as an FX module of ATen calls; its inputs and parameters are positional arguments, in order.

    Args:
        graph: what is to be run.
        device: where operators that read nothing make their tensors; a graph does not tell. None: where torch does.

    Raises:
        GraphError: an operator is none of ATen's, here.
    """
    made = fx.Graph()
    nodes: dict[str, fx.Node] = {value.name: made.placeholder(f"v{i}") for i, value in enumerate(graph.values)}

    def resolve(arg: Arg) -> Any:
        if isinstance(arg, Ref):
            several = arg.name in several_results
            return made.call_function(_getitem, (nodes[arg.name], arg.index)) if several else nodes[arg.name]
        if isinstance(arg, tuple):
            return [resolve(item) for item in arg]
        return _constant(arg)

    several_results = {op.name for op in graph.ops if _returns_several(op.op)}
    for op in graph.ops:
        arguments = {key: resolve(value) for key, value in op.args}
        if device is not None and _makes_of_nothing(op):
            arguments["device"] = device
        nodes[op.name] = made.call_function(overload(op.op), (), arguments)
    made.output(tuple(resolve(ref) for ref in graph.outputs))
    return fx.GraphModule({}, made)


def _getitem(values: Sequence[Any], index: int) -> Any:
    return values[index]


def overload(name: str) -> torch._ops.OpOverload:
    """The ATen operator of that name: `convolution`, `add.Tensor`.

    Raises:
        GraphError: torch has none.
    """
    base, _, variant = name.partition(".")
    try:
        return getattr(getattr(torch.ops.aten, base), variant or "default")  # type: ignore[no-any-return]
    except AttributeError:
        raise GraphError(f"torch {torch.__version__} has no operator aten.{name}") from None


def _returns_several(name: str) -> bool:
    returns = overload(name)._schema.returns
    return len(returns) > 1 or str(returns[0].type) == "List[Tensor]"


def _makes_of_nothing(op: Op) -> bool:
    """Whether an operator makes a tensor of numbers alone: `arange`, `scalar_tensor`; `new_zeros` reads one."""
    return not any(op.refs()) and any(argument.name == "device" for argument in overload(op.op)._schema.arguments)


def _constant(value: Arg) -> Any:
    if isinstance(value, str) and value.startswith("torch."):
        return getattr(torch, value.removeprefix("torch."))
    return value
