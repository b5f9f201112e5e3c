"""ir.Graph -> torch.fx module of ATen calls: what is run, measured and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from costmodel.errors import GraphError
from costmodel.ir import Arg, Graph, Ref


def build_module(graph: Graph) -> fx.GraphModule:
    """The graph as an FX module of ATen calls; its inputs and parameters are positional arguments, in order.

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
        nodes[op.name] = made.call_function(overload(op.op), (), {key: resolve(value) for key, value in op.args})
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


def _constant(value: Arg) -> Any:
    if isinstance(value, str) and value.startswith("torch."):
        return getattr(torch, value.removeprefix("torch."))
    return value
