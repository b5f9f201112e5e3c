"""Module -> memory report: peaks of inference and training, saved activations, and ways to save fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from costmodel import checks
from costmodel.capture.inputs import Inputs, inputs_fault, module_fault
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError, RequestError
from costmodel.ir import HALF_PRECISION as AMP
from costmodel.ir import Graph, Op, operators
from costmodel.memory.alternatives import alternatives
from costmodel.memory.capacity import shortage
from costmodel.memory.checkpoint_regions import choose_modules
from costmodel.memory.peaks import OPTIMIZERS, Peak, inference_peak, training_peak
from costmodel.memory.recompute import recompute
from costmodel.memory.report import Inference, MemoryReport, SavedActivations, Training
from costmodel.memory.saved_tensors import SavedTensors, saved_activations, saved_tensors, unknown_savers
from costmodel.memory.state import State, state_of
from costmodel.memory.workspace import (
    convolution_allowance_bytes,
    convolution_workspaces,
    graph_pool_bytes,
    matmul_workspace_bytes,
)
from costmodel.profiles.profile import Profile, profile_of
from costmodel.report.types import Unsupported
from costmodel.timeline.issue_trace import eager_trace, layout_of, main_input

if TYPE_CHECKING:
    from torch import nn

    from costmodel.capture.with_partition import RealCall

PASSES = ("inference", "training")

POLICY_LAUNCHES = 35.0
"""Host time of an operator under the checkpointing policy, forward and again, over that of launching a kernel.

Steps of resnet50, densenet121 and mobilenet_v2 took 0.36 to 0.43 ms longer for each operator of their checkpointed
modules, on a host of an H200 that needed 11 us for a launch (trained_models/nvidia-h200/study/recomputation.csv)."""


@takes_turns
@checked(
    module=module_fault,
    inputs=inputs_fault,
    hardware=checks.optional(checks.profile_name),
    model_name=checks.optional(checks.text),
    optimizer=checks.one_of(OPTIMIZERS),
    passes=checks.some_of(PASSES, at_least=1),
    all_trainable=checks.flag,
    check=checks.flag,
    compiled=checks.flag,
    real=checks.optional(checks.must_be("a function", callable)),
    is_whole=checks.flag,
    amp=checks.optional(checks.one_of(AMP)),
)
def analyze_memory(
    module: nn.Module,
    inputs: Inputs,
    *,
    hardware: str | None = None,
    model_name: str | None = None,
    optimizer: str = "none",
    passes: Sequence[str] = PASSES,
    all_trainable: bool = True,
    check: bool = True,
    compiled: bool = False,
    real: RealCall | None = None,
    is_whole: bool = False,
    amp: str | None = None,
) -> MemoryReport:
    """Analyse the memory of a module in inference and training.

    Args:
        module: real or meta parameters, in evaluation mode for inference; a training step is captured in training
            mode in any case, and the module's mode is restored.
        inputs: positional inputs, or a mapping of keyword inputs; real, meta or fake tensors.
        hardware: name of the profile that predicts times; None for this machine's GPU if it has a profile.
        model_name: name of the model in the report; None for its class.
        optimizer: a key of `OPTIMIZERS`.
        passes: `inference`, `training` or both.
        all_trainable: whether to count every parameter as trained, regardless of `requires_grad`.
        check: whether Dynamo traces the forward pass of inference to find graph breaks.
        compiled: whether to find the peak of the compiled training step too, which takes some seconds.
        real: factory of the module and its inputs with real tensors, for a pass that reads their values.
        is_whole: whether torch.compile is known to make one graph of the module.
        amp: `float16` or `bfloat16` for inference under `torch.autocast("cuda", ...)`, which keeps its casts of weights
            until the pass ends; None for the caller's region, if any.

    Raises:
        RequestError: unknown optimiser or pass; or `amp` with a training step, or with the profile of a CPU.
        UnknownHardwareError: there is no such profile.
        CaptureError: the module cannot be captured, or has no operator.
    """
    profile = profile_of(hardware)
    name = model_name or type(module).__name__
    if amp is not None and (profile.on_cpu or "training" in passes):
        raise RequestError(
            f"memory under amp {amp} is predicted for inference on GPUs; give --inference (passes=('inference',)), and "
            "a GPU's --hardware"
        )
    how: dict[str, Any] = {"check": check, "compiled": compiled, "real": real, "is_whole": is_whole, "amp": amp}
    return analyze_on(profile, module, inputs, name, optimizer, passes, all_trainable, **how)


@takes_turns
def analyze_on(
    profile: Profile,
    module: nn.Module,
    inputs: Inputs,
    name: str,
    optimizer: str = "none",
    passes: Sequence[str] = PASSES,
    all_trainable: bool = True,
    *,
    check: bool = False,
    compiled: bool = False,
    real: RealCall | None = None,
    is_whole: bool = False,
    amp: str | None = None,
) -> MemoryReport:
    """Analyse memory by a loaded profile; arguments and errors are those of `analyze_memory`."""
    from costmodel.capture.with_partition import capture_step, capture_whole
    from costmodel.timeline.graphs import graphs_of

    step = capture_step(module, inputs, name, real) if "training" in passes else None
    forward = step
    if "inference" in passes:  # attention unrolled as in training, and as in every torch version
        how: dict[str, Any] = {"check": check, "real": real, "is_whole": is_whole, "fast_path": False, "amp": amp}
        forward = capture_whole(module, inputs, name, **how)
    assert forward is not None  # there is a pass
    if not forward.ops:
        raise CaptureError(f"{name}: the model has no operator to run, so there is no memory to analyse")
    state = state_of(module, inputs, all_trainable=all_trainable)
    main = main_input(forward)
    inference = _inference(forward, state, profile) if "inference" in passes else None
    trained = _training(step, state, profile, optimizer) if step is not None else None
    if trained is not None and compiled:
        trained = _with_compiled(trained, module, inputs, name, state, profile, all_trainable)
    return MemoryReport(
        model=name,
        hardware=profile.name,
        batch_size=main.shape[0] if main.shape else 1,
        input_shape=main.shape,
        precision=main.dtype,
        layout=layout_of(forward),
        parameter_bytes=state.parameter_bytes,
        buffer_bytes=state.buffer_bytes,
        input_bytes=state.input_bytes,
        inference=inference,
        training=trained,
        unsupported=_unsupported(step or forward),
        warnings=_too_large({"inference": inference, "training": trained}, profile),
        graphs=graphs_of(forward),
        arithmetic=f"amp {amp}" if amp else "",
    )


def _too_large(figures: Mapping[str, Inference | Training | None], profile: Profile) -> tuple[str, ...]:
    """Warnings about passes whose peak exceeds the device's memory."""
    peaks = {name: found.peak_bytes for name, found in figures.items() if found is not None}
    faults = {name: shortage(peak, profile.device.memory_bytes) for name, peak in peaks.items()}
    return tuple(f"{name} {fault}" for name, fault in faults.items() if fault)


def _inference(graph: Graph, state: State, profile: Profile) -> Inference:
    workspace = matmul_workspace_bytes(graph, profile.capability, training=False)
    resident = state.resident_bytes + workspace
    convolutions = convolution_workspaces(graph, profile.predictor)
    peak = inference_peak(graph, resident, convolutions)
    return Inference(
        peak_bytes=peak.nbytes,
        peak_at=_where(graph, peak),
        workspace_bytes=workspace,
        convolution_workspace_bytes=max(convolutions.values(), default=0),
        convolution_allowance_bytes=convolution_allowance_bytes(graph),
        graph_pool_bytes=graph_pool_bytes(peak.nbytes, resident, state.input_bytes),
    )


def _training(graph: Graph, state: State, profile: Profile, optimizer: str) -> Training:
    workspace = matmul_workspace_bytes(graph, profile.capability, training=True)
    saved = saved_tensors(graph, state.trainable)
    held = OPTIMIZERS[optimizer].state * state.trainable_bytes
    resident = state.resident_bytes + workspace + held
    peak, between = training_peak(graph, saved, state.trainable, resident)
    stepping = resident + state.trainable_bytes * (1 + OPTIMIZERS[optimizer].step)
    times = operator_times(graph, profile)
    forward_us = sum(times.values())

    def time_us(op: Op) -> float:
        return times.get(op.name, 0.0)

    checkpointing = choose_modules(graph, saved, time_us)
    return Training(
        peak_bytes=max(peak.nbytes, stepping),
        peak_at=_where(graph, peak) if peak.nbytes >= stepping else "optimizer step",
        workspace_bytes=workspace,
        convolution_allowance_bytes=convolution_allowance_bytes(graph),
        gradient_bytes=state.trainable_bytes,
        optimizer=optimizer,
        optimizer_bytes=held,
        between_bytes=between,
        forward_us=forward_us,
        feature_maps=_by_kind(graph, saved),
        recomputation=recompute(graph, saved, time_us),
        checkpointing=checkpointing,
        checkpointing_host_us=checkpointing_host_us(checkpointing.operators, profile),
        alternatives=alternatives(graph, saved, forward_us, profile.predictor.roofline.bytes_per_us),
    )


def checkpointing_host_us(operators: int, profile: Profile) -> float:
    """Host time that checkpointing adds to an eager step, whose policy is Python code around each operator; us."""
    return POLICY_LAUNCHES * operators * (profile.summary.host.probe_us or 0.0)


def _with_compiled(
    step: Training, module: nn.Module, inputs: Inputs, name: str, state: State, profile: Profile, all_trainable: bool
) -> Training:
    """The step with the peak of its compiled form."""
    from costmodel.memory.compiled_step import compiled_step_peak

    resident = state.resident_bytes + step.workspace_bytes + step.optimizer_bytes
    parts = profile.device.multiprocessors
    found = compiled_step_peak(module, inputs, name, resident, parts, all_trainable=all_trainable)
    stepping = resident + state.trainable_bytes * (1 + OPTIMIZERS[step.optimizer].step)
    return replace(step, compiled_peak_bytes=max(found, stepping))


def operator_times(graph: Graph, profile: Profile) -> Mapping[str, float]:
    """Predict device time of each operator in an eager forward pass, microseconds; views are left out.

    Raises:
        ProfileError: the profile's predictor is damaged or of another version.
    """
    program = eager_trace(graph)
    estimates = profile.predictor.predict(program.kernels, program.positions)
    return {kernel.ops[0]: estimate.us for kernel, estimate in zip(program.kernels, estimates, strict=True)}


def _by_kind(graph: Graph, saved: Sequence[SavedTensors]) -> tuple[SavedActivations, ...]:
    """Saved activations by the kind of operator that computed them, largest first."""
    makers = {op.name: operators.kind_of(op) for op in graph.ops}
    found: dict[str, list[int]] = {}
    for ref, nbytes in saved_activations(graph, saved).items():
        found.setdefault(makers[ref.name], []).append(nbytes)
    if extra := [entry.extra_bytes for entry in saved if entry.extra_bytes]:
        found["attention statistics"] = extra
    return tuple(
        SavedActivations(kind, len(sizes), sum(sizes))
        for kind, sizes in sorted(found.items(), key=lambda item: (-sum(item[1]), item[0]))
    )


def _unsupported(graph: Graph) -> tuple[Unsupported, ...]:
    return tuple(dict.fromkeys(Unsupported(op.base, op.module) for op in unknown_savers(graph)))


def _where(graph: Graph, peak: Peak) -> str:
    """Module of the operator at the peak; the kind of the operator if it has no module."""
    op = next((op for op in graph.ops if op.name == peak.op), None)
    return "" if op is None else op.module or operators.kind_of(op)
