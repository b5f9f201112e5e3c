"""Numerics as a gate: a plan is used only where its outputs are as good as eager execution's, judged by float64's."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from costmodel.capture.inputs import Arguments
from costmodel.capture.trace import tensors_in

FACTOR = 4.0
"""How many times eager execution's own error against float64 is allowed."""
FLOOR: Mapping[torch.dtype, float] = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Relative error that is allowed in any case: two units in the last place of the type."""
FLOOR_FLOAT32 = 1e-4
FLOOR_TF32 = 2e-3
"""In float32; where torch lets cuDNN round to TF32 (by default, on a GPU), any convolution may: to 2^-11 an operand."""


def random_like(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Normal values of a tensor's type and strides; integers keep their own values, or are zero if they have none."""
    fresh = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    if tensor.is_floating_point():
        return fresh.normal_()
    return fresh.zero_() if tensor.is_meta else fresh.copy_(tensor)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    """||got - expected|| / ||expected||, the norm itself where nothing is expected; infinite for NaN or wrong shape."""
    if got.shape != expected.shape:
        return math.inf
    wide = expected.double()
    size = wide.norm().item()
    error = (got.double() - wide).norm().item()
    error = error / size if size else error
    return error if math.isfinite(error) else math.inf


def worst_error(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest relative error over the outputs of a pass."""
    return max((relative_error(a, b) for a, b in zip(got, expected, strict=True)), default=0.0)


def allowed_error(outputs: Sequence[torch.Tensor], eager_error: float) -> float:
    """What a plan's outputs may differ from float64's, given what eager execution's do."""
    rounding = torch.backends.cudnn.allow_tf32 and any(output.is_cuda for output in outputs)
    float32 = FLOOR_TF32 if rounding else FLOOR_FLOAT32
    floors = [FLOOR.get(output.dtype, float32) for output in outputs]
    return max([FACTOR * eager_error, *floors])


def reference(module: nn.Module, inputs: Arguments) -> list[torch.Tensor] | None:
    """The module's outputs in float64; None where it cannot run in it, as code that names a type may not."""
    try:
        wide = copy.deepcopy(module).double()
        return list(tensors_in(inputs.like(_widened).passed_to(wide)))
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def passes(
    run: Callable[[], Sequence[torch.Tensor]], eager: Sequence[torch.Tensor], exact: Sequence[torch.Tensor] | None
) -> bool:
    """Whether a plan's outputs may be used, beside eager execution's and float64's (eager's, if there are none)."""
    truth = exact if exact is not None else eager
    return worst_error(run(), truth) <= allowed_error(eager, worst_error(eager, truth))
