"""nn.Module -> executable graph, with constants and the structure of the result."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from costmodel.capture.inputs import Inputs
from costmodel.capture.tensor_values import CONSTANT
from costmodel.capture.trace import lower, tensors_in, trace
from costmodel.errors import DataDependentError, PlanError
from costmodel.ir import Graph
from costmodel.ir.strides import with_pinned_strides
from costmodel.zoo.placement import wraps_others

_ONE_GRAPH = (
    "a plan is one CUDA graph, which reads no values: plan the submodules around that line, or use torch.compile"
)


@dataclass(frozen=True, slots=True)
class Exact:
    """A forward pass as an executable graph.

    Attributes:
        graph: operators of the pass.
        constants: tensors that are neither inputs nor parameters, by name.
        spec: structure of the result.
        leaves: leaves of the result: an index into the graph's outputs, or None and a value that is no tensor.
    """

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    spec: TreeSpec
    leaves: tuple[tuple[int | None, Any], ...]

    def nest(self, outputs: Sequence[torch.Tensor]) -> Any:
        """Arrange the graph's outputs in the structure that the module returns."""
        return tree_unflatten([other if i is None else outputs[i] for i, other in self.leaves], self.spec)


def capture_exactly(
    module: nn.Module, inputs: Inputs, name: str, amp: str | None = None, device: str | None = None
) -> Exact:
    """Capture one forward pass with its constants as an executable graph; nothing is run.

    Args:
        module: module in evaluation mode.
        inputs: inputs, as for `costmodel.capture.trace.capture`.
        name: name of the graph.
        amp: precision of an autocast region around the pass, whose casts become operators; None for none.
        device: type of the device that the graph will run on, whose autocast regions are recorded; None if it is
            unknown, for a pass that enters none.

    Raises:
        CaptureError: the pass cannot be captured.
        DataDependentError: it reads values of tensors, which a CUDA graph cannot do.
        PlanError: the pass writes into inputs or state, uses its own random generator, has tensors that wrap others, or
            returns a structure that cannot be rebuilt.
    """
    for key, tensor in (*module.named_parameters(), *module.named_buffers()):
        if wraps_others(tensor):
            raise PlanError(f"{name} has {key}, a {type(tensor).__name__} tensor, which a plan does not support")
    try:
        traced = trace(module, inputs, exact=True, amp=amp, device=device)
    except DataDependentError as error:
        raise DataDependentError(f"{error}; {_ONE_GRAPH}") from error
    for node in traced.nodes:
        if node.kwargs.get("generator") is not None:
            raise PlanError(f"{name} draws random numbers from its own torch.Generator, which a plan does not support")
        _refuse_writes(node)
    attributes = [node for node in traced.nodes if node.op == "get_attr" and str(node.target).startswith(CONSTANT)]
    constants = {str(node.target): node.meta["value"] for node in attributes}
    result = next(node for node in reversed(traced.nodes) if node.op == "output").meta["result"]
    order = {id(tensor): index for index, tensor in enumerate(tensors_in(result))}
    leaves, spec = tree_flatten(result)
    known = tuple((order.get(id(leaf)), None if isinstance(leaf, torch.Tensor) else leaf) for leaf in leaves)
    if {index for index, _ in known if index is not None} != set(order.values()):
        raise PlanError(f"{name} returns a {type(result).__name__}; return tensors in tuples, lists or dicts")
    return Exact(with_pinned_strides(lower(traced, name)), constants, spec, known)


def _refuse_writes(node: fx.Node) -> None:
    """Raise for a write into an input, a parameter or a buffer: a replay would write at another time."""
    if not _writes(node.target):
        return
    written = node.all_input_nodes[0]
    while _shares_memory(written.target):
        written = written.all_input_nodes[0]
    if written.op in ("placeholder", "get_attr") and not str(written.target).startswith(CONSTANT):
        raise PlanError(
            f"the forward pass writes into {written.target}; a plan needs a forward pass that changes no state"
        )


def _writes(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _shares_memory(target: object) -> bool:
    """Whether an operator's result shares the memory of its first operand."""
    return (
        target is operator.getitem or _writes(target) or (isinstance(target, torch._ops.OpOverload) and target.is_view)
    )
