"""nn.Module -> training step: its eager operators, and the graphs that torch.compile makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from costmodel import ir
from costmodel.capture.inputs import Inputs
from costmodel.capture.joint_graph import CompiledStep, compiled_step
from costmodel.capture.model_output import stdout_to_stderr
from costmodel.capture.step_recording import Loss, RecordedStep, record_step
from costmodel.capture.trace import lower
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """A training step without its optimizer.

    Attributes:
        eager: operators of forward pass, loss and backward pass, `Op.section` a Phase. Its outputs are the gradients
            and the buffers that the step updates.
        compiled: graphs of the compiled module; None where AOTAutograd fails.
        failure: why it fails.
        parameters: types of the parameters that get a gradient.
        nodes: autograd nodes that the backward pass runs, without those that accumulate gradients.
    """

    eager: ir.Graph
    compiled: CompiledStep | None
    failure: str
    parameters: tuple[ir.TensorType, ...]
    nodes: int

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.eager.name


@takes_turns
def capture_training_step(
    module: nn.Module,
    inputs: Inputs,
    name: str = "model",
    *,
    loss: Loss | None = None,
    amp: str | None = None,
    compiles: bool = True,
) -> TrainingStep:
    """Capture the training step of a module, on meta tensors; nothing is run.

    Args:
        module: module with real or meta parameters, which is unchanged afterwards. Those without `requires_grad` are
            frozen.
        inputs: positional inputs, or a mapping of keyword inputs.
        name: name of the model.
        loss: function from the module's result to a scalar, which runs eagerly; None for `usual_loss`.
        amp: precision of an autocast region around forward pass and loss.
        compiles: whether to find the compiled graphs too.

    Raises:
        CaptureError: the step cannot be captured.
    """
    with stdout_to_stderr():
        recorded = record_step(module, inputs, loss=loss, amp=amp)
        if not recorded.results:
            raise CaptureError(f"the forward pass of {type(module).__name__} returned no tensor")
        graph = lower(recorded.graph, name)
        compiled, failure = _compiled(recorded, name) if compiles else (None, "")
    kinds = {str(node.target): node.meta["types"][0] for node in recorded.graph.find_nodes(op="get_attr")}
    parameters = tuple(kinds[trained] for trained in recorded.trainable if trained in kinds)
    return TrainingStep(graph, compiled, failure, parameters, recorded.nodes)


def _compiled(recorded: RecordedStep, name: str) -> tuple[CompiledStep | None, str]:
    try:
        return compiled_step(recorded, name), ""
    except CaptureError as error:
        return None, str(error)
