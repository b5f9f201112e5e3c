"""Reasons not to plan a graph that Dynamo captured: gradients, dynamic sizes, aliases, special tensors, randomness."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import fx, nn
from torch._C import _set_grad_enabled
from torch.utils._pytree import tree_leaves

from costmodel.backend.dynamic_sizes import NUMBERS, reason_to_stay_dynamic
from costmodel.capture.aten_operators import overload
from costmodel.capture.autocast import AMP
from costmodel.execution.torch_settings import active_autocasts
from costmodel.ir import Graph, Op, Ref, operators
from costmodel.ir.op_table import Role

PLAIN = (torch.Tensor, nn.Parameter)
DEVICES = ("cpu", "cuda")
_BOOKKEEPING = (operator.getitem, _set_grad_enabled)


@dataclass(frozen=True, slots=True)
class TracedGraph:
    """Graph that Dynamo captured, and the arguments of the call that it traced."""

    gm: fx.GraphModule
    arguments: Sequence[Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Tensors among the arguments."""
        return [value for value in self.arguments if isinstance(value, torch.Tensor)]

    @property
    def all_tensors(self) -> list[torch.Tensor]:
        """Tensors among the arguments, and those that are attributes of the graph."""
        return [*self.tensors, *self.gm.parameters(), *self.gm.buffers()]


def reason_not_to_plan(gm: fx.GraphModule, arguments: Sequence[Any]) -> str:
    """Reason in words; empty if the graph may be planned."""
    traced = TracedGraph(gm, arguments)
    checks = (_dynamic_sizes, _special_tensors, _devices, _gradients, _autocast, _nothing_to_run, _aliases)
    return next((reason for check in checks if (reason := check(traced))), "")


def count_calls(gm: fx.GraphModule) -> int:
    """Number of calls in a graph that may compute something."""
    return sum(
        node.op in ("call_function", "call_method", "call_module") and node.target not in _BOOKKEEPING
        for node in gm.graph.nodes
    )


def reason_not_to_replay(graph: Graph) -> str:
    """Reason not to plan a captured graph: random numbers, or results that share memory; empty if there is none.

    Dynamo's fake tensors do not show every alias: dropout in evaluation returns its very input.
    """
    if drawn := next((op.op for op in graph.ops if _draws(op)), ""):
        return f"it draws random numbers ({drawn})"
    given = {value.name for value in graph.values}
    behind = {op.name: op.refs()[0] for op in graph.ops if operators.lookup(op).role is Role.VIEW and op.refs()}
    seen: dict[Ref, Ref] = {}
    for ref in graph.outputs:
        owner = ref
        while owner.name in behind:
            owner = behind[owner.name]
        if owner.name in given:
            return f"a result is an input or a view of one ({owner.name})"
        if seen.setdefault(owner, ref) != ref:
            return f"two results share memory ({seen[owner].name}, {ref.name})"
    return ""


def _draws(op: Op) -> bool:
    """Whether an operator draws random numbers; attention does with dropout alone."""
    if torch.Tag.nondeterministic_seeded not in overload(op.op).tags:
        return False
    rates = [value for name, value in op.args if name == "dropout_p"]
    return bool(rates[0]) if rates else "dot_product_attention" not in op.op


def _dynamic_sizes(traced: TracedGraph) -> str:
    odd = next((value for value in traced.arguments if not isinstance(value, (torch.Tensor, *NUMBERS))), None)
    return reason_to_stay_dynamic(traced.arguments) if odd is None else f"an input is a {type(odd).__name__}"


def _special_tensors(traced: TracedGraph) -> str:
    for tensor in traced.all_tensors:
        if type(tensor) not in PLAIN or tensor.is_quantized or tensor.is_nested or tensor.layout is not torch.strided:
            return f"it has a {type(tensor).__name__} that is no dense tensor of torch"
        if not tensor.numel():
            return f"it has an empty tensor of shape {tuple(tensor.shape)}"
    known = (value for node in traced.gm.graph.nodes for value in _fakes(node))
    if any(tensor.is_complex() for tensor in chain(traced.all_tensors, known)):
        return "it computes with complex numbers"
    return ""


def _devices(traced: TracedGraph) -> str:
    found = {tensor.device for tensor in traced.all_tensors}
    if not found:
        return "it has no input and no parameter"
    if len(found) > 1:
        return f"its tensors are on several devices: {', '.join(sorted(map(str, found)))}"
    device = found.pop()
    return "" if device.type in DEVICES else f"it runs on {device}, for which there are no plans"


def _gradients(traced: TracedGraph) -> str:
    enabled = torch.is_grad_enabled() or any(
        node.target is _set_grad_enabled and node.args == (True,) for node in traced.gm.graph.nodes
    )
    if enabled and any(tensor.requires_grad for tensor in (*traced.tensors, *traced.gm.parameters())):
        return "it may need gradients, and a plan computes none; call it under torch.no_grad()"
    return ""


def _autocast(traced: TracedGraph) -> str:
    active = {tensor.device.type for tensor in traced.all_tensors} & set(active_autocasts())
    dtypes = {torch.get_autocast_dtype(device_type) for device_type in active} - set(AMP.values())
    return f"it runs under autocast to {dtypes.pop()}, for which there are no plans" if dtypes else ""


def _nothing_to_run(traced: TracedGraph) -> str:
    if not count_calls(traced.gm):
        return "it computes nothing"
    if not any(_fakes(node) or isinstance(node, fx.Node) for node in _returned(traced.gm)):
        return "it returns no tensor"
    return ""


def _aliases(traced: TracedGraph) -> str:
    """Results that share memory with an input or with each other; a plan returns them in memory of their own."""
    given = {_memory(value) for node in traced.gm.graph.find_nodes(op="placeholder") for value in _fakes(node)}
    given |= {_memory(value) for node in traced.gm.graph.find_nodes(op="get_attr") for value in _fakes(node)}
    seen: dict[int, fx.Node] = {}
    for node in _returned(traced.gm):
        if isinstance(node.meta.get("example_value"), NUMBERS):
            continue
        fakes = list(_fakes(node))
        if node.op in ("placeholder", "get_attr") or any(_memory(value) in given for value in fakes):
            return f"a result ({node.name}) is an input or a view of one"
        if not fakes:
            return f"nothing is known of a result ({node.name})"
        for value in fakes:
            if seen.setdefault(_memory(value), node) is not node:
                return f"two results ({seen[_memory(value)].name}, {node.name}) share memory"
    return ""


def _returned(gm: fx.GraphModule) -> Iterator[fx.Node]:
    """Nodes that a graph returns, each once."""
    output = next(iter(gm.graph.find_nodes(op="output")))
    yield from dict.fromkeys(leaf for leaf in tree_leaves(output.args) if isinstance(leaf, fx.Node))


def _fakes(node: fx.Node) -> Iterator[torch.Tensor]:
    """Fake tensors that Dynamo computed for a node."""
    found = tree_leaves(node.meta.get("example_value"))
    return (leaf for leaf in found if isinstance(leaf, torch.Tensor))


def _memory(tensor: torch.Tensor) -> int:
    """Identity of the memory of a fake tensor."""
    return int(tensor.untyped_storage()._cdata)
