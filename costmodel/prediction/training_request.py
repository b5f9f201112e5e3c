"""Request of a training step's prediction: options, checks, and the way from a module to its report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from costmodel.capture.inputs import Inputs
from costmodel.errors import RequestError
from costmodel.kernels.optimizers import OPTIMIZERS
from costmodel.prediction.arithmetic import Arithmetic
from costmodel.prediction.hosts import on_host, with_host
from costmodel.profiles.profile import Profile
from costmodel.report.types import Graphs, Report

if TYPE_CHECKING:
    from torch import nn

    from costmodel.capture.step_recording import Loss
    from costmodel.prediction.training import CapturedStep

USUAL_OPTIMIZER = "sgd"


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """Optimizer and loss that make a training step of a module.

    Attributes:
        optimizer: one of `costmodel.kernels.optimizers.OPTIMIZERS`.
        loss: function from the module's result to a scalar; None for the usual one.
    """

    optimizer: str = USUAL_OPTIMIZER
    loss: Loss | None = None


def requested(training: bool, optimizer: str | None, loss: Loss | None = None) -> TrainingRequest | None:
    """The request that options make; None for inference.

    Raises:
        RequestError: an option of training without training, or an unknown optimizer.
    """
    if not training:
        name = "optimizer" if optimizer is not None else "loss" if loss is not None else ""
        if name:
            raise RequestError(f"{name} is of a training step; give training too, or leave it out")
        return None
    if optimizer is not None and optimizer not in OPTIMIZERS:
        raise RequestError(f"unknown optimizer {optimizer!r}; choose one of {', '.join(OPTIMIZERS)}")
    return TrainingRequest(optimizer or USUAL_OPTIMIZER, loss)


def check_device(profile: Profile) -> None:
    """Refuse a CPU's profile.

    Raises:
        RequestError: names the profile.
    """
    if profile.on_cpu:
        raise RequestError(
            f"a training step is predicted for GPUs, and {profile.name} is a CPU; choose another --hardware, such as "
            "nvidia-h200"
        )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[nn.Module]:
    """The module in evaluation mode, and each submodule in its own mode again afterwards."""
    modes = [(child, child.training) for child in module.modules()]
    try:
        yield module.eval()
    finally:
        for child, mode in modes:
            child.training = mode


def graphs_in_training(module: nn.Module, inputs: Inputs, name: str, **how: Any) -> Graphs | None:
    """Graphs that Dynamo makes of a module, as of its forward pass in evaluation mode; None where it cannot tell.

    Args:
        module: the module.
        inputs: its inputs.
        name: its name.
        how: options of `capture_with_partition`.
    """
    from costmodel.capture.with_partition import capture_with_partition
    from costmodel.errors import CaptureError
    from costmodel.timeline.graphs import graphs_of

    try:
        with evaluating(module):
            return graphs_of(capture_with_partition(module, inputs, name, **how))
    except CaptureError:
        return None


def predict_captured_step(
    captured: CapturedStep,
    request: TrainingRequest,
    arithmetic: Arithmetic,
    *,
    hardware: str | None = None,
    host: str | float | None = None,
    images: int | None = None,
    graphs: Graphs | None = None,
    explain: bool = False,
) -> Report:
    """Report of a captured step.

    Args:
        captured: the step.
        request: its optimizer and loss.
        arithmetic: settings of torch.
        hardware: name of a profile; None for this machine's GPU, else the default.
        host: host that launches the kernels, as of `predict`.
        images: images in a step; None for the first size of the main input.
        graphs: graphs that Dynamo makes of the module; None if it was not asked.
        explain: whether to add the reasons.

    Raises:
        RequestError: there is no such host, or the device is a CPU.
        ProfileError: the profile is damaged or of another version.
    """
    from costmodel.prediction.training import predict_step
    from costmodel.prediction.training_reasons import step_reasons

    profile, chosen = on_host(hardware, host, arithmetic)
    check_device(profile)
    found = predict_step(captured, profile, request.optimizer, images, graphs)
    report = with_host(replace(found, arithmetic=arithmetic.words), profile, chosen, host)
    return replace(report, explanation=step_reasons(report)) if explain else report
