"""Estimates of kernels -> predictions of each kernel, with its place in the timeline of each mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costmodel.ir import Graph, operators
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.layer_groups import Layer
from costmodel.prediction.timed_kernels import TimedKernels
from costmodel.profiles.profile import Profile
from costmodel.report.kernel_prediction import KernelPrediction
from costmodel.report.types import EAGER, ModePrediction
from costmodel.timeline.cost_tables import COSTS, CPU_COSTS
from costmodel.timeline.graphs import is_compiled
from costmodel.timeline.issue_trace import origin_of
from costmodel.timeline.spans import Span, spans


def predict_kernels(
    graph: Graph,
    layers: Sequence[Layer],
    modes: Mapping[str, ModePrediction],
    eager: TimedKernels,
    compiled: TimedKernels,
    profile: Profile,
) -> dict[str, tuple[KernelPrediction, ...]]:
    """Predictions of the kernels of each predicted mode, in order of issue.

    Args:
        graph: captured graph.
        layers: its layers.
        modes: predicted modes.
        eager: kernels of the eager pass.
        compiled: kernels of the compiled pass.
        profile: profile of the hardware.
    """
    needed = CPU_COSTS if profile.on_cpu else COSTS
    tables = {name: profile.costs(name, costs) for name, costs in needed.items()}
    compiles = is_compiled(graph) and compiled.trace.subgraphs > 0
    kinds = {op.name: operators.kind_of(op) for op in graph.ops if not operators.is_view(op)}
    names = [layer.name for layer in layers]
    found: dict[str, tuple[KernelPrediction, ...]] = {}
    for mode in modes:
        run, simulated = (compiled, mode) if compiles and mode != EAGER else (eager, EAGER)
        found[mode] = _kernels(run, spans(simulated, run.timed, tables), names, kinds)
    return found


def _kernels(
    run: TimedKernels, found: Sequence[Span], names: Sequence[str], kinds: Mapping[str, str]
) -> tuple[KernelPrediction, ...]:
    return tuple(
        KernelPrediction(
            name=kernel_name(kernel, kinds),
            layers=tuple(dict.fromkeys(names[place] for place in sorted(shares))),
            backend=kernel.backend,
            flops=parts.flops,
            bytes=parts.bytes,
            host_start_us=span.host_start_us,
            host_us=span.host_us,
            device_start_us=span.device_start_us,
            device_us=estimate.us,
            low_us=estimate.low_us,
            high_us=estimate.high_us,
            bound=parts.bound,
            extrapolated=not estimate.in_range,
        )
        for kernel, estimate, parts, shares, span in zip(
            run.trace.kernels, run.estimates, run.parts, run.shares, found, strict=True
        )
    )


def kernel_name(kernel: Kernel, kinds: Mapping[str, str]) -> str:
    """Kind of a library call; kinds of the captured operators that a fused kernel computes, joined by `+`.

    Args:
        kernel: the kernel.
        kinds: kinds of the captured operators by name, without views.
    """
    if kernel.backend != "triton":
        return kernel.kind
    origins = dict.fromkeys(map(origin_of, kernel.ops))
    return "+".join(kinds[name] for name in origins if name in kinds) or kernel.kind
