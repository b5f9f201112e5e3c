"""Recording of an eager training step on meta tensors: forward pass, loss and backward pass as one FX graph.

Each operator that the three passes dispatch is recorded below autograd, as on a GPU. An operator of the backward pass
belongs to the module whose operator made its autograd node, which sequence numbers tell.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import fx, nn

from costmodel import ir
from costmodel.capture.aliasing import type_of
from costmodel.capture.autocast import AMP, surrounding
from costmodel.capture.inputs import Arguments, Inputs, inputs_fault, module_fault
from costmodel.capture.intercepts import WholeOperators
from costmodel.capture.meta_tensors import named_parts
from costmodel.capture.module_facts import facts_of
from costmodel.capture.module_state import scopes, state_on_meta, untouched
from costmodel.capture.recorder import Recorder
from costmodel.capture.trace import checked_modules, declaring, explained, tensors_in
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError, first_line, text_of

Loss = Callable[[Any], torch.Tensor]
"""Function from the result of a module to a scalar loss."""


class Phase(IntEnum):
    """Passes of a training step, in order; `Op.section` of its operators."""

    FORWARD = 0
    LOSS = 1
    LOSS_BACKWARD = 2
    BACKWARD = 3


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A training step as an FX graph.

    Attributes:
        graph: operators of the three passes; `meta["phase"]` is a node's Phase, `meta["module"]` its module. The output
            node returns the gradients of the parameters.
        results: nodes of the tensors that the forward pass returns.
        trainable: names of the parameters that get a gradient.
        nodes: number of autograd nodes that the backward pass runs.
    """

    graph: fx.Graph
    results: tuple[fx.Node, ...]
    trainable: tuple[str, ...]
    nodes: int


class StepRecorder(Recorder):
    """Recorder that also follows a backward pass.

    Attributes:
        phase: the pass that is recorded.
        nodes: autograd nodes that the backward pass has run.
    """

    def __init__(self, root: nn.Module, names: Mapping[int, str]) -> None:
        super().__init__(root, names, training=True, differentiates=True)
        self.phase = Phase.FORWARD
        self.nodes: set[int] = set()
        self._makers: dict[int, tuple[Phase, str]] = {}
        self._serves = Phase.LOSS_BACKWARD, ""

    def record(self, target: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
        """Add the node of a finished call, with its pass and the module that it serves."""
        if self.phase is not Phase.BACKWARD and torch._C._current_autograd_node() is not None:
            raise CaptureError(
                f"{self.where} differentiates within the forward pass (torch.autograd.grad), so a step needs a double "
                "backward, which torch.compile does not support; predict the part that it differentiates"
            )
        before = next(iter(reversed(self.graph.nodes)), None)
        super().record(target, args, kwargs, result)
        self.wants_gradient |= torch.is_grad_enabled()
        phase, module = self._served()
        for node in reversed(self.graph.nodes):
            if node is before:
                break
            node.meta.update(phase=phase, is_differentiated=self.wants_gradient)
            if node.target is target and isinstance(result, (tuple, list)):
                node.meta["types"] = results_of(result)
            if "module" in node.meta:
                node.meta["module"] = module

    def _served(self) -> tuple[Phase, str]:
        """Pass and module of the current operator: of a backward pass, those of the maker of its autograd node.

        Sums of gradients run between two nodes, and belong to the one before.
        """
        if self.phase is not Phase.BACKWARD:
            made = Phase.BACKWARD if self.phase is Phase.FORWARD else Phase.LOSS_BACKWARD
            self._makers.setdefault(torch._C._autograd._get_sequence_nr() - 1, (made, self._running.path))
            return self.phase, self._running.path
        node = torch._C._current_autograd_node()
        if node is not None:
            self.nodes.add(node._sequence_nr())
            self._serves = self._makers.get(node._sequence_nr(), self._serves)
        return self._serves


@takes_turns
def record_step(module: nn.Module, inputs: Inputs, *, loss: Loss | None = None, amp: str | None = None) -> RecordedStep:
    """Record one forward pass in training mode, the loss of its result, and the backward pass.

    Args:
        module: module; its parameters may be real or meta tensors. It is unchanged afterwards.
        inputs: positional inputs, or a mapping of keyword inputs.
        loss: function from the module's result to a scalar; None for `usual_loss`.
        amp: precision of an autocast region around forward pass and loss, a key of AMP; None for the caller's, if any.

    Raises:
        CaptureError: the step fails; the message names the module and quotes the error.
        DataDependentError: it needs the values of a tensor.
    """
    for name, fault in (("module", module_fault(module)), ("inputs", inputs_fault(inputs))):
        if fault:
            raise CaptureError(f"{name} {fault}")
    around = surrounding(type(module).__name__)
    with untouched(module), torch.random.fork_rng(devices=[]):
        state = state_on_meta(module, training=False)
        return _recorded(module, state, inputs, loss or usual_loss, AMP[amp] if amp else around)


def _recorded(
    module: nn.Module, state: dict[str, torch.Tensor], inputs: Inputs, loss: Loss, amp: torch.dtype | None
) -> RecordedStep:
    known = {id(part): name for key, tensor in state.items() for name, part in named_parts(key, tensor)}
    trained = {id(tensor): (name, tensor) for name, tensor in state.items() if tensor.requires_grad}
    if not trained:
        raise CaptureError(
            f"{type(module).__name__} has no parameter that trains; set requires_grad on those that a step updates"
        )
    recorder = StepRecorder(module, known)
    call = Arguments.of(inputs).like(declaring(recorder, state))
    with ExitStack() as around:
        for context in (torch.enable_grad(), scopes(recorder), recorder, WholeOperators(recorder, False, amp)):
            around.enter_context(context)
        around.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        module.train()
        with explained(recorder):
            result = torch.func.functional_call(module, state, call.args, call.kwargs, tie_weights=True)
        outputs = tuple(recorder.node_of(tensor) for tensor in tensors_in(result))
        recorder.phase = Phase.LOSS
        scalar = _scalar(loss, result, module)
    del result, call
    gradients = _backward(recorder, scalar, [tensor for _, tensor in trained.values()], module)
    names = [name for (name, _), gradient in zip(trained.values(), gradients, strict=True) if gradient is not None]
    returned = tuple(recorder.node_of(gradient) for gradient in gradients if gradient is not None)
    recorder.finish()
    recorder.graph.output((*returned, *_updates(recorder.graph))).meta.update(
        calls=recorder.counts.calls, checked_modules=checked_modules(module), modules=facts_of(module)
    )
    return RecordedStep(recorder.graph, outputs, tuple(names), len(recorder.nodes))


def _updates(graph: fx.Graph) -> list[fx.Node]:
    """Writes of the forward pass into buffers, such as counts of batches; nothing else may read their results."""

    def writes_buffer(node: fx.Node) -> bool:
        target, given = node.target, node.args[0] if node.args else None
        writes = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
        return writes and isinstance(given, fx.Node) and given.op == "get_attr"

    return [node for node in graph.nodes if node.op == "call_function" and writes_buffer(node)]


def usual_loss(result: Any) -> torch.Tensor:
    """Loss that a step is predicted with: cross entropy of 2-D results, else the sum of means of all float results.

    Targets of cross entropy are classes, one an image; they are made here, as they are read from memory in any case.
    """
    found = [tensor for tensor in tensors_in(result) if tensor.is_floating_point() and tensor.requires_grad]
    if not found:
        raise CaptureError("the result of the module depends on no parameter that trains")
    if len(found) == 1 and found[0].dim() == 2 and found[0].shape[1] > 1:
        logits = found[0]
        target = torch.zeros(logits.shape[0], dtype=torch.int64, device=logits.device)
        return nn.functional.cross_entropy(logits, target)
    means = [tensor.float().mean() for tensor in found]
    return sum(means[1:], means[0])


def _scalar(loss: Loss, result: Any, module: nn.Module) -> torch.Tensor:
    """Loss of a result.

    Raises:
        CaptureError: it fails, is no scalar, or depends on no parameter.
    """
    name = type(module).__name__
    try:
        scalar = loss(result)
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(
            f"the loss of {name} failed: {type(error).__name__}: {first_line(text_of(error))}"
        ) from error
    if not isinstance(scalar, torch.Tensor) or scalar.numel() != 1:
        shape = "x".join(map(str, scalar.shape)) if isinstance(scalar, torch.Tensor) else type(scalar).__name__
        raise CaptureError(f"the loss of {name} is no scalar but {shape}; reduce it, as loss.mean() does")
    if not scalar.requires_grad:
        raise CaptureError(f"the loss of {name} depends on no parameter that trains, so there is no backward pass")
    return scalar


def _backward(
    recorder: StepRecorder, scalar: torch.Tensor, trained: list[torch.Tensor], module: nn.Module
) -> tuple[torch.Tensor | None, ...]:
    """Run the backward pass: gradients of the parameters, None for those that the loss does not depend on.

    Raises:
        CaptureError: it fails, as where an operator overwrites a tensor that the backward pass needs.
    """
    recorder.phase = Phase.BACKWARD
    try:
        with scopes(recorder), recorder:
            return torch.autograd.grad(scalar, trained, allow_unused=True)
    except CaptureError:
        raise
    except RuntimeError as error:
        reason = first_line(text_of(error))
        if "modified by an inplace operation" in reason:
            reason = "a tensor that it needs was overwritten in place; compute the new value out of place"
        elif "second time" in reason:
            reason = "it goes through the same graph twice; compute the result anew, or detach it"
        raise CaptureError(f"the backward pass of {type(module).__name__} failed: {reason}") from error


UNDEFINED = ir.TensorType("uint8", (0,))
"""Type of a result that an operator leaves undefined, such as a gradient that nobody needs."""


def results_of(found: Sequence[Any]) -> tuple[ir.TensorType, ...]:
    """Types of several results by their places."""
    kinds = [type_of(item) if isinstance(item, torch.Tensor) else UNDEFINED for item in found]
    while kinds and kinds[-1] is UNDEFINED:
        kinds.pop()
    return tuple(kinds)
