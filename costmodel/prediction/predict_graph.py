"""Captured graph -> report: kernels, modes, layers and warnings on the hardware of a profile."""

from __future__ import annotations

from costmodel.errors import CaptureError
from costmodel.ir import Graph
from costmodel.memory.capacity import eager_bytes, shortage
from costmodel.prediction.bounds import extrapolated_share
from costmodel.prediction.graph_facts import graph_facts, images_of
from costmodel.prediction.kernel_predictions import predict_kernels
from costmodel.prediction.layer_groups import layers_of
from costmodel.prediction.layer_predictions import layer_flops, predict_layers
from costmodel.prediction.modes import Work, predict_modes
from costmodel.prediction.report_warnings import (
    unmeasured_kinds,
    unmeasured_precisions,
    unmeasured_settings,
    unsupported_in,
    warnings_of,
)
from costmodel.prediction.timed_kernels import timed_kernels
from costmodel.prediction.verdict import LEAVE, verdict_of
from costmodel.profiles.profile import Profile
from costmodel.report.types import Report
from costmodel.timeline.graphs import graph_warnings, graphs_of, is_compiled
from costmodel.timeline.issue_trace import issue_traces


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
    layers = layers_of(graph)
    before, after = timed_kernels(graph, layers, (eager, compiled), profile)
    eager_kernels, compiled_kernels = before.estimates, after.estimates
    kernels = (*eager.kernels, *compiled.kernels)
    unsupported = unsupported_in(graph)
    images = batch_size or images_of(graph)
    flops = sum(layer_flops(graph, layer) for layer in layers)
    modes = predict_modes(graph, before, after, profile, Work(images, flops))
    peak = eager_bytes(graph)
    too_large = shortage(peak, profile.device.memory_bytes)
    verdict, leaning = verdict_of(modes, whole=not (graph.partial or too_large))
    if not is_compiled(graph):
        verdict = leaning = LEAVE
    return Report(
        **graph_facts(graph),
        hardware=profile.name,
        batch_size=images,
        modes=modes,
        best_mode=min(modes, key=lambda mode: modes[mode].latency_ms),
        verdict=verdict,
        leaning=leaning,
        layers=predict_layers(graph, layers, before, after),
        unsupported=unsupported,
        warnings=(
            *([too_large] if too_large else []),
            *unmeasured_precisions(kernels, profile),
            *unmeasured_kinds(kernels),
            *unmeasured_settings(kernels, profile),
            *graph_warnings(graph),
            *warnings_of(graph, eager_kernels, compiled_kernels),
        ),
        partial=graph.partial,
        too_large=too_large,
        extrapolated_share=max(extrapolated_share(eager_kernels), extrapolated_share(compiled_kernels)),
        graphs=graphs_of(graph),
        flops=flops,
        peak_memory_bytes=peak,
        kernels=predict_kernels(graph, layers, modes, before, after, profile),
    )
