"""Peak memory of a compiled training step, from the graphs that torch.compile makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from costmodel.capture.inputs import Inputs
from costmodel.capture.training_step import capture_training_step
from costmodel.errors import CaptureError
from costmodel.inductor.training import compile_step
from costmodel.memory.step_peaks import compiled_peak_bytes

if TYPE_CHECKING:
    from torch import nn


def compiled_step_peak(
    module: nn.Module, inputs: Inputs, name: str, resident_bytes: int, multiprocessors: int, *, all_trainable: bool
) -> int:
    """Predict the peak of a compiled forward and backward pass.

    Args:
        module: module, which is unchanged afterwards.
        inputs: positional inputs, or a mapping of keyword inputs.
        name: name of the model.
        resident_bytes: bytes that are alive all the time.
        multiprocessors: streaming multiprocessors of the GPU.
        all_trainable: whether every parameter is trained, regardless of `requires_grad`.

    Raises:
        CaptureError: the step cannot be captured or compiled.
    """
    with _trained(module, all_trainable):
        step = capture_training_step(module, inputs, name)
    if step.compiled is None:
        raise CaptureError(step.failure)
    graphs = step.compiled
    both = compile_step(graphs.forward, graphs.backward, graphs.saved, multiprocessors)
    return compiled_peak_bytes(*both, graphs.saved, resident_bytes)


@contextmanager
def _trained(module: nn.Module, all_trainable: bool) -> Iterator[None]:
    """Context in which every parameter of floating point trains, if asked for."""
    frozen = [one for one in module.parameters() if not one.requires_grad and one.is_floating_point()]
    try:
        for parameter in frozen if all_trainable else ():
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
