"""Reasons behind the prediction of a training step: where its time goes in each mode."""

from __future__ import annotations

from costmodel.report.figures import milliseconds
from costmodel.report.training_prediction import PassTimes
from costmodel.report.types import ModePrediction, Reason, Report

HOST_BOUND = 1.1
"""Host time over device time from which a step waits for the host."""


def step_reasons(report: Report) -> tuple[Reason, ...]:
    """A reason a mode: what bounds it, and the device time of its passes."""
    step = report.training
    if step is None:
        return ()
    modes = ((mode, report.modes[mode], times) for mode, times in step.passes.items() if mode in report.modes)
    about = Reason("step", step.optimizer, f"loss: {step.loss}; loss and optimizer run eagerly in every mode")
    return (about, *(Reason("mode", mode, _why(prediction, times)) for mode, prediction, times in modes))


def _why(mode: ModePrediction, times: PassTimes) -> str:
    waits = mode.host_ms > HOST_BOUND * mode.device_ms
    bound = "the device waits for the host" if waits else "the device is busy"
    return (
        f"{bound}: host {milliseconds(mode.host_ms)} ms; device {milliseconds(mode.device_ms)} ms, of which forward "
        f"{milliseconds(times.forward_ms)}, backward {milliseconds(times.backward_ms)}, optimizer "
        f"{milliseconds(times.optimizer_ms)} ms"
    )
