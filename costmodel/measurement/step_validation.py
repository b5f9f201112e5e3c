"""Measure a training step, eager and compiled, interleaved, and compare it with the prediction."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import nn

from costmodel import checks
from costmodel.capture.inputs import inputs_in_a_row_fault, module_fault
from costmodel.capture.step_recording import usual_loss
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.execution.inductor_compile import share_cache
from costmodel.execution.numerics import random_like
from costmodel.execution.preconditions import device_of
from costmodel.execution.torch_settings import torch_settings
from costmodel.kernels.optimizers import OPTIMIZERS
from costmodel.measurement.training_steps import RunningStep, optimizer_of
from costmodel.measurement.validation import MODES, USUAL, Run, interleave, this_host_speed
from costmodel.measurement.validation_report import Validation
from costmodel.prediction.arithmetic import AMP, HIGHEST, MATMUL_PRECISIONS, Arithmetic
from costmodel.prediction.predict import predict
from costmodel.prediction.training_request import USUAL_OPTIMIZER
from costmodel.profiles.profile import load_profile, resolve_default


@takes_turns
@checked(
    module=module_fault,
    inputs=inputs_in_a_row_fault,
    optimizer=checks.one_of(OPTIMIZERS),
    loss=checks.optional(checks.must_be("a function", callable)),
    amp=checks.optional(checks.one_of(AMP)),
    matmul_precision=checks.one_of(MATMUL_PRECISIONS),
    cudnn_benchmark=checks.flag,
    hardware=checks.optional(checks.profile_name),
    model_name=checks.optional(checks.text),
    modes=checks.some_of(MODES),
    seconds=checks.positive_finite,
    host=checks.optional(checks.host),
)
def validate_step(
    module: nn.Module,
    inputs: Sequence[Any],
    *,
    optimizer: str = USUAL_OPTIMIZER,
    loss: Callable[[Any], torch.Tensor] | None = None,
    amp: str | None = None,
    matmul_precision: str = HIGHEST,
    cudnn_benchmark: bool = False,
    hardware: str | None = None,
    model_name: str | None = None,
    modes: Sequence[str] = USUAL,
    seconds: float = 0.1,
    host: str | float | None = None,
) -> Validation:
    """Measure a training step in eager execution and torch.compile's modes, and compare with the prediction.

    A copy of the module trains; the module itself is unchanged.

    Args:
        module: on the device to measure.
        inputs: positional inputs; the measurement uses random tensors of the same shapes and dtypes.
        optimizer: optimizer of the step.
        loss: function from the module's result to a scalar; None for the usual one.
        amp: precision of an autocast region around forward pass and loss.
        matmul_precision: precision of float32 matmuls, as of `torch.set_float32_matmul_precision`.
        cudnn_benchmark: whether cuDNN times its algorithms for each convolution.
        hardware: name of the profile; None for this machine's GPU if there is a profile for it, else the default.
        model_name: name of the model in the result; None for its class.
        modes: names from MODES.
        seconds: duration of measuring one mode in each of the seven rounds.
        host: calibrated host to predict for, by name or speed; None to probe this one.

    Raises:
        RequestError: an unknown mode or host, or a profile of a CPU.
    """
    device = device_of(module, inputs)
    chosen = resolve_default()[0] if hardware is None else hardware
    arithmetic = Arithmetic(amp, matmul_precision, cudnn_benchmark)
    arithmetic.check_device(load_profile(chosen))  # refuse it, or a damaged profile, before measuring
    example = tuple(random_like(item, device) if isinstance(item, torch.Tensor) else item for item in inputs)
    share_cache()
    trained = copy.deepcopy(module).train()
    around = (device.type, getattr(torch, amp)) if amp else None
    step = RunningStep(optimizer_of(trained, optimizer), example, autocast=around, loss=loss or usual_loss)
    with torch_settings(arithmetic):
        runs = {"eager": Run.of(lambda: step.of(trained), (), device)}
        for mode in modes:
            runs[mode] = Run.of(partial(_compiled_step, step, trained, mode), (), device)
        interleave(runs, seconds, device.type)
    host = this_host_speed(chosen, device) if host is None else host
    options: dict[str, Any] = {"training": True, "optimizer": optimizer, "loss": loss, **asdict(arithmetic)}
    report = predict(module, inputs, hardware=chosen, model_name=model_name, host=host, check=False, **options)
    return Validation(
        model=report.model,
        hardware=chosen,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        input_shape=report.input_shape,
        precision=f"{report.precision}, training with {optimizer}",
        arithmetic=report.arithmetic,
        modes={name: run.result(_latency(report.modes.get(name)), runs["eager"]) for name, run in runs.items()},
        host_speed=report.host_speed,
    )


def _compiled_step(step: RunningStep, module: nn.Module, mode: str) -> Callable[[], torch.Tensor]:
    return step.of(torch.compile(module, mode=mode))


def _latency(mode: Any) -> float | None:
    return None if mode is None else mode.latency_ms
