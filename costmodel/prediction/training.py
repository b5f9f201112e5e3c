"""Module -> report of a training step: forward pass, loss, backward pass, optimizer; nothing runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from costmodel.capture.inputs import Inputs
from costmodel.capture.step_recording import Phase
from costmodel.capture.training_step import TrainingStep, capture_training_step
from costmodel.memory.capacity import shortage
from costmodel.memory.state import State, state_of
from costmodel.memory.step_peaks import compiled_peak_bytes, eager_peak_bytes, optimizer_peak_bytes
from costmodel.memory.workspace import matmul_workspace_bytes
from costmodel.prediction.bounds import extrapolated_share, kernel_width, latency_bounds, speedup_bounds
from costmodel.prediction.compile_fields import cold_fields
from costmodel.prediction.graph_facts import graph_facts, images_of
from costmodel.prediction.report_warnings import unmeasured_precisions, unsupported_in, warnings_of
from costmodel.prediction.roofline_parts import roofline_parts, roofline_us
from costmodel.prediction.step_layers import step_layers
from costmodel.prediction.step_traces import TimedPass, TimedStep, time_step
from costmodel.prediction.verdict import verdict_of
from costmodel.profiles.profile import Profile
from costmodel.report.training_prediction import PassTimes, TrainingPrediction
from costmodel.report.types import EAGER, Graphs, ModePrediction, Report
from costmodel.timeline.compile_time import ASSUMED_WIDTH, COLD, Seconds, compile_counts, compile_us, with_interval
from costmodel.timeline.cost_tables import COSTS
from costmodel.timeline.queue import Timing
from costmodel.timeline.step_costs import STEP_COSTS, at_host
from costmodel.timeline.training_queue import Segment, compiled_segments, eager_segments, timing_of

if TYPE_CHECKING:
    from torch import nn

    from costmodel.capture.step_recording import Loss

LATENCY_WIDTH = 0.05
SPEEDUP_WIDTHS = {"default": 0.0, "reduce-overhead": 0.1}
"""Half-widths of the intervals of logarithms beyond those of inference and of extrapolated kernels.

Of 44 steps on H200s whose hosts drifted, host calibrated, the intervals of latency hold 93 %, and so do those of
speedup in `default` and, of 15 steps, in `reduce-overhead`."""
BREAKS_COST = 1.2
"""Most that a step of several graphs, or in part outside of graphs, takes over an eager one. It is predicted as one
graph, so its intervals reach to there: a graph costs the host about ten launches."""
OPERATORS_PER_CAPTURED = 2.5
"""Traced operators for each operator of the forward pass, in a forward and a backward graph, by which compile time is
extrapolated from that of inference."""
USUAL_LOSS = "cross entropy"
OTHER_LOSS = "sum of the means of all results"
GIVEN_LOSS = "given"


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """A captured step with what its prediction needs beside it.

    Attributes:
        step: the step.
        state: bytes of parameters, buffers and inputs.
        loss: its loss, in words.
    """

    step: TrainingStep
    state: State
    loss: str


def capture_step(
    module: nn.Module, inputs: Inputs, name: str, *, loss: Loss | None = None, amp: str | None = None
) -> CapturedStep:
    """Capture the training step of a module; arguments and errors are those of `capture_training_step`."""
    step = capture_training_step(module, inputs, name, loss=loss, amp=amp)
    is_usual = any(op.base == "nll_loss_forward" for op in step.eager.ops if op.section == Phase.LOSS)
    words = GIVEN_LOSS if loss is not None else USUAL_LOSS if is_usual else OTHER_LOSS
    return CapturedStep(step, state_of(module, inputs), words)


def predict_step(
    captured: CapturedStep,
    profile: Profile,
    optimizer: str,
    batch_size: int | None = None,
    graphs: Graphs | None = None,
) -> Report:
    """Report of a training step.

    Args:
        captured: the step.
        profile: profile of a GPU, under the settings of the step.
        optimizer: one of `costmodel.kernels.optimizers.OPTIMIZERS`.
        batch_size: images in a step; None for the first size of the main input.
        graphs: graphs that Dynamo makes of the module; None if it was not asked.

    Raises:
        RequestError: there is no rule for the optimizer.
        ProfileError: the profile is damaged or of another version.
    """
    captured = _as_it_runs(captured, graphs)
    graph, step = captured.step.eager, time_step(captured.step, optimizer, profile)
    hosts = [_timings(step, profile, speed) for speed in profile.host_speeds]
    images = batch_size or images_of(graph)
    layers, by_pass = step_layers(graph, step, profile)
    flops = 3 * sum(layer.flops for layer in layers)
    modes = _modes(captured.step, step, hosts, profile, images, flops, _is_divided(graphs))
    peaks = step_peaks(captured, step, optimizer, profile)
    too_large = shortage(peaks.get(EAGER), profile.device.memory_bytes)
    verdict, leaning = verdict_of(modes, whole=not too_large)
    eager, compiled = _estimates(_eager_passes(step)), _estimates(_compiled_passes(step))
    kernels = [kernel for one in _eager_passes(step) for kernel in one.trace.kernels]
    return Report(
        **graph_facts(graph),
        hardware=profile.name,
        batch_size=images,
        modes=modes,
        best_mode=min(modes, key=lambda mode: modes[mode].latency_ms),
        verdict=verdict,
        leaning=leaning,
        layers=layers,
        unsupported=unsupported_in(graph),
        warnings=(
            *([too_large] if too_large else []),
            *([captured.step.failure] if captured.step.failure else []),
            *_divided(graphs),
            *unmeasured_precisions(kernels, profile),
            *warnings_of(graph, eager, compiled or eager),
        ),
        too_large=too_large,
        extrapolated_share=max(extrapolated_share(eager), extrapolated_share(compiled or eager)),
        graphs=graphs or Graphs(),
        flops=flops,
        peak_memory_bytes=peaks[EAGER] - matmul_workspace_bytes(graph, profile.capability, training=True),
        training=TrainingPrediction(optimizer, captured.loss, _passes(step, modes, peaks), by_pass),
    )


def _as_it_runs(captured: CapturedStep, graphs: Graphs | None) -> CapturedStep:
    """The step without compiled graphs where torch.compile fails on the module, or gives up all of it."""
    if graphs is None or not (graphs.error or graphs.count == 0):
        return captured
    failure = f"torch.compile fails: {graphs.error}" if graphs.error else "torch.compile gives up every frame"
    return replace(captured, step=replace(captured.step, compiled=None, failure=f"{failure}; the step runs eagerly"))


def _is_divided(graphs: Graphs | None) -> bool:
    """Whether a module runs as several graphs, or in part outside of its graphs."""
    return graphs is not None and ((graphs.count or 1) > 1 or bool(graphs.breaks))


def _divided(graphs: Graphs | None) -> tuple[str, ...]:
    if graphs is None or not _is_divided(graphs) or not graphs.count:
        return ()
    several = f"divides the module into {graphs.count} graphs"
    parts = several if graphs.count > 1 else "leaves a part of the module out of its graph"
    return (f"Dynamo {parts}; the step is predicted as one graph, and may gain less, down to nothing",)


def _timings(step: TimedStep, profile: Profile, speed: float) -> dict[str, Timing]:
    """Times of a step in each mode, on a host of a speed."""
    tables = {name: profile.costs(name, costs, speed) for name, costs in COSTS.items()}
    costs = at_host(STEP_COSTS, speed)
    segments = segments_by_mode(step, tables, costs)
    walls = {EAGER: "eager_wall"}
    return {mode: timing_of(found, tables[walls.get(mode, "default_wall")]) for mode, found in segments.items()}


def segments_by_mode(
    step: TimedStep, tables: Mapping[str, Mapping[str, float]], costs: Mapping[str, float] = STEP_COSTS
) -> dict[str, list[Segment]]:
    """Segments of a step in each mode."""
    found = {EAGER: eager_segments(step.eager_step, step.optimizer_step, tables, costs)}
    if step.compiled is not None:
        for mode, replayed in (("default", False), ("reduce-overhead", True)):
            found[mode] = compiled_segments(
                step.eager_step, step.compiled.traces, step.optimizer_step, tables, replayed, costs
            )
    return found


def _eager_passes(step: TimedStep) -> list[TimedPass]:
    return [*step.eager.values(), step.optimizer]


def _compiled_passes(step: TimedStep) -> list[TimedPass]:
    if step.compiled is None:
        return []
    alone = [step.eager[phase] for phase in (Phase.LOSS, Phase.LOSS_BACKWARD)]
    return [step.compiled.forward, *alone, step.compiled.backward, step.optimizer]


def _estimates(passes: Sequence[TimedPass]) -> list[Any]:
    return [estimate for one in passes for estimate in one.estimates]


def _modes(
    captured: TrainingStep,
    step: TimedStep,
    hosts: Sequence[dict[str, Timing]],
    profile: Profile,
    images: int,
    flops: int,
    is_divided: bool,
) -> dict[str, ModePrediction]:
    """Predictions by mode; a mode without intervals of inference is left out."""
    latency_widths, speedup_widths = profile.intervals("latency"), profile.intervals("speedup")
    modes: dict[str, ModePrediction] = {}
    both = (_eager_passes(step), _compiled_passes(step))
    for mode, timing in hosts[0].items():
        if mode not in latency_widths or (mode != EAGER and mode not in speedup_widths):
            continue
        passes = both[mode != EAGER]
        width = latency_widths[mode] + LATENCY_WIDTH + kernel_width(_estimates(passes))
        low, high = (us / 1e3 for us in latency_bounds(hosts, mode, width))
        if is_divided and mode != EAGER:
            high = max(high, modes[EAGER].high_ms * BREAKS_COST)
        lines = [roofline_us(roofline_parts(one.trace.kernels, profile.predictor.roofline)) for one in passes]
        achieved: dict[str, Any] = {
            "roofline_ms": sum(lines) / 1e3,
            "images_per_s": images / timing.latency_us * 1e6,
            "tflops": flops / timing.latency_us / 1e6,
        }
        common = (timing.latency_us / 1e3, low, high, timing.host_us / 1e3, timing.device_us / 1e3)
        if mode == EAGER:
            modes[mode] = ModePrediction(*common, **achieved)
            continue
        speedup = hosts[0][EAGER].latency_us / timing.latency_us
        wide = speedup_widths[mode] + SPEEDUP_WIDTHS[mode] + kernel_width(_estimates(passes)) / 2
        least, most = speedup_bounds(hosts, mode, wide)
        speedups = speedup, min(least, 1 / BREAKS_COST) if is_divided else least, most
        compiling = cold_fields(compile_seconds(captured, step, profile), modes[EAGER], speedups)
        modes[mode] = ModePrediction(*common, *speedups, **compiling | achieved)
    return modes


def compile_seconds(captured: TrainingStep, step: TimedStep, profile: Profile) -> Seconds:
    """Seconds to compile forward and backward graph with an empty cache, within a factor of 2."""
    assert step.compiled is not None  # there is a compiled mode
    kernels = (*step.compiled.forward.trace.kernels, *step.compiled.backward.trace.kernels)
    counts = compile_counts(kernels, step.compiled.forward.trace.parameters)
    forward = sum(op.section == Phase.FORWARD for op in captured.eager.ops)
    counts["operator"] = OPERATORS_PER_CAPTURED * forward
    counts["fused_operator"] = counts["fused_operator"] / math.sqrt(OPERATORS_PER_CAPTURED)
    return with_interval(compile_us(counts, profile.costs(COLD)), ASSUMED_WIDTH)


def step_peaks(captured: CapturedStep, step: TimedStep, optimizer: str, profile: Profile) -> dict[str, int]:
    """Peak memory of a step by mode, with the workspaces of matmuls."""
    from costmodel.memory.peaks import OPTIMIZERS

    state, graph = captured.state, captured.step.eager
    held = OPTIMIZERS[optimizer].state * state.trainable_bytes
    resident = state.resident_bytes + held + matmul_workspace_bytes(graph, profile.capability, training=True)
    updating = optimizer_peak_bytes(step.updates, state.trainable_bytes, resident)
    found = {EAGER: max(updating, eager_peak_bytes(graph, resident))}
    if step.compiled is not None:
        compiled = compiled_peak_bytes(*step.compiled.compilations, step.compiled.saved, resident)
        found["default"] = max(updating, compiled)
    return found


def _passes(step: TimedStep, modes: Mapping[str, ModePrediction], peaks: Mapping[str, int]) -> dict[str, PassTimes]:
    """Device time of the passes by mode."""

    def ms(*passes: TimedPass) -> float:
        return sum(one.us for part in passes for one in part.estimates) / 1e3

    eager, optimizer = step.eager, ms(step.optimizer)
    loss = eager[Phase.LOSS], eager[Phase.LOSS_BACKWARD]
    first = PassTimes(
        ms(eager[Phase.FORWARD], loss[0]), ms(loss[1], eager[Phase.BACKWARD]), optimizer, peaks.get(EAGER)
    )
    found = {EAGER: first}
    if step.compiled is not None:
        forward, backward = ms(step.compiled.forward, loss[0]), ms(loss[1], step.compiled.backward)
        for mode in modes:
            if mode != EAGER:
                found[mode] = PassTimes(forward, backward, optimizer, peaks.get(mode))
    return found
