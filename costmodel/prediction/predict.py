"""Module -> report: effect of torch.compile on some hardware, predicted without running the module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from costmodel import checks
from costmodel.capture.inputs import Arguments, Inputs, inputs_fault, module_fault
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import CaptureError, RequestError
from costmodel.ir import Graph
from costmodel.memory.capacity import eager_bytes, shortage
from costmodel.prediction.bounds import extrapolated_share
from costmodel.prediction.layer_predictions import predict_layers
from costmodel.prediction.modes import predict_modes
from costmodel.prediction.report_warnings import unmeasured_precisions, unsupported_in, warnings_of
from costmodel.prediction.verdict import LEAVE, verdict_of
from costmodel.profiles.hosts import describe_host, resolve_host
from costmodel.profiles.profile import Profile, profile_of
from costmodel.report.types import Report
from costmodel.timeline.graphs import graph_warnings, graphs_of, is_compiled
from costmodel.timeline.issue_trace import issue_traces, layout_of, main_input

if TYPE_CHECKING:
    from torch import nn

WAYS = ("run", "fx", "export", "dynamo")
"""Ways of capture: those of `costmodel.capture.frontends.WAYS`, and `dynamo`, which always checks for graph breaks."""


@takes_turns
@checked(
    module=module_fault,
    inputs=inputs_fault,
    hardware=checks.optional(checks.profile_name),
    model_name=checks.optional(checks.text),
    explain=checks.flag,
    host=checks.optional(checks.host),
    shapes=checks.each(checks.shape, "shapes, which are sequences of sizes above 0"),
    check=checks.flag,
    frontend=checks.one_of(WAYS),
)
def predict(
    module: nn.Module,
    inputs: Inputs,
    *,
    hardware: str | None = None,
    model_name: str | None = None,
    explain: bool = False,
    host: str | float | None = None,
    shapes: Sequence[Sequence[int]] = (),
    frontend: str = "run",
    check: bool = True,
) -> Report:
    """Predict what torch.compile does to a module, without running it.

    Args:
        module: module in evaluation mode, with real or meta parameters; it is not changed.
        inputs: positional inputs, or a mapping of keyword inputs: real, meta or fake tensors, also inside lists, tuples
            and dicts. A list of images is a batch.
        hardware: name of a profile; None for this machine's GPU if it has a profile, else the default.
        model_name: name of the model in the report; None for its class.
        explain: whether to add the reasons.
        shapes: further shapes of the main input, whose recompilations `explain` lists.
        frontend: way of capture, one of `costmodel.capture.frontends.WAYS`.
        host: host whose CPU launches the kernels: the name of a calibrated host (`costmodel collect host` runs the host
            probe on it), or its speed relative to the profile's host. None: an uncalibrated host; the prediction is for
            the profile's host, an undisturbed machine, and the intervals cover slower hosts too.
        check: whether Dynamo traces the module to find graph breaks; else the pass is predicted as one graph.

    Raises:
        UnknownHardwareError: there is no such profile.
        RequestError: there is no such host, or a shape has another number of dimensions than the main input.
        CaptureError: the module cannot be captured, or has nothing to compile.
        ProfileError: the profile is damaged or of another version.
    """
    from costmodel.zoo.training_mode import AS_IT_IS, training_warning

    name = model_name or type(module).__name__
    training = training_warning(module, AS_IT_IS)
    graph = _captured(module, inputs, name, frontend, check)
    report = predict_captured(graph, inputs, hardware=hardware, explain=explain, host=host, shapes=shapes)
    return replace(report, warnings=(*([training] if training else []), *report.warnings))


def _captured(module: nn.Module, inputs: Inputs, name: str, frontend: str, check: bool) -> Graph:
    from costmodel.capture.with_partition import capture_with_partition

    captured = module
    if frontend not in ("run", "dynamo"):
        from costmodel.capture.frontends import convert

        captured = convert(module, inputs, frontend)
    return capture_with_partition(captured, inputs, name, check=check or frontend == "dynamo", compiled=module)


def predict_captured(
    graph: Graph,
    inputs: Inputs,
    *,
    hardware: str | None = None,
    explain: bool = False,
    host: str | float | None = None,
    shapes: Sequence[Sequence[int]] = (),
) -> Report:
    """Predict a graph captured from a module with these inputs; arguments and errors are those of `predict`."""
    profile = profile_of(hardware)
    chosen = resolve_host(None if host is None else str(host), profile)
    profile = replace(profile, host_speed=chosen.speed, host_calibrated=host is not None)
    found = predict_graph(graph, profile, _images(inputs))
    calibrated = None if profile.on_cpu else host is not None
    assumed = "" if calibrated else describe_host(profile)
    report = replace(found, host=chosen.name, host_speed=chosen.speed, host_calibrated=calibrated)
    report = replace(report, assumed_host=assumed)
    if explain:
        from costmodel.prediction.explain import explain as reasons

        if odd := [shape for shape in shapes if len(shape) != len(report.input_shape)]:
            wanted, given = ("x".join(map(str, shape)) for shape in (report.input_shape, odd[0]))
            raise RequestError(f"the shape {given} does not fit this model's input; give one like {wanted}")
        return replace(report, explanation=reasons(graph, profile, report, shapes))
    return report


def _images(inputs: Inputs) -> int | None:
    """Number of images in a list of images; None for an input that is no list."""
    call = Arguments.of(inputs)
    first = next(iter((*call.args, *call.kwargs.values())), None)
    return len(first) if isinstance(first, (list, tuple)) else None


def predict_graph(graph: Graph, profile: Profile, batch_size: int | None = None) -> Report:
    """Report for a captured graph.

    Args:
        graph: graph of a model, or of a part of it.
        profile: profile of the hardware.
        batch_size: images in a forward pass; None for the first size of the main input.

    Raises:
        CaptureError: the graph has no operator that computes anything.
        ProfileError: the profile is damaged or of another version.
    """
    eager, compiled = issue_traces(graph, profile.device)
    if not eager.kernels:
        raise CaptureError(f"{graph.name}: the model has no operator to run, so there is nothing to predict")
    eager_kernels = profile.predictor.predict(eager.kernels, eager.positions)
    compiled_kernels = profile.predictor.predict(compiled.kernels, compiled.positions)
    unsupported = unsupported_in(graph)
    modes = predict_modes(graph, eager, compiled, eager_kernels, compiled_kernels, profile)
    too_large = shortage(eager_bytes(graph), profile.device.memory_bytes)
    verdict, leaning = verdict_of(modes, whole=not (graph.partial or too_large))
    if not is_compiled(graph):
        verdict = leaning = LEAVE
    main = main_input(graph)
    return Report(
        model=graph.name,
        hardware=profile.name,
        batch_size=batch_size or (main.shape[0] if main.shape else 1),
        input_shape=main.shape,
        precision=main.dtype,
        layout=layout_of(graph),
        modes=modes,
        best_mode=min(modes, key=lambda mode: modes[mode].latency_ms),
        verdict=verdict,
        leaning=leaning,
        layers=predict_layers(graph, eager, compiled, eager_kernels, compiled_kernels),
        unsupported=unsupported,
        warnings=(
            *([too_large] if too_large else []),
            *unmeasured_precisions((*eager.kernels, *compiled.kernels), profile),
            *graph_warnings(graph),
            *warnings_of(graph, eager_kernels, compiled_kernels),
        ),
        partial=graph.partial,
        too_large=too_large,
        extrapolated_share=max(extrapolated_share(eager_kernels), extrapolated_share(compiled_kernels)),
        graphs=graphs_of(graph),
    )
