"""Timings of an issue trace -> predictions of each mode, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.errors import ProfileError
from costmodel.features import is_unruled
from costmodel.ir import Graph
from costmodel.prediction.bounds import KeyedEstimate, kernel_width, latency_bounds, speedup_bounds, speedup_width
from costmodel.prediction.compile_fields import compile_fields
from costmodel.prediction.roofline_parts import roofline_us
from costmodel.prediction.timed_kernels import TimedKernels
from costmodel.predictor.estimate import Estimate
from costmodel.profiles.card import CARD
from costmodel.profiles.profile import Profile
from costmodel.report.types import ModePrediction
from costmodel.timeline import gpu, queue
from costmodel.timeline.cost_tables import COSTS, CPU_COSTS
from costmodel.timeline.graphs import is_compiled
from costmodel.timeline.issue_trace import IssueTrace
from costmodel.timeline.timed_trace import TimedTrace

UNKNOWN_WIDTH = 0.5
"""Addition to the half-width of an interval for data-dependent control flow that ends the graph."""
UNRULED_FACTOR = 4.0
"""Time of an operator without a cost rule that intervals include, over the time of its traffic, which is counted."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one call: number of images, and arithmetic of convolutions, matmuls and attention."""

    images: int
    flops: int


def predict_modes(
    graph: Graph, before: TimedKernels, after: TimedKernels, profile: Profile, work: Work
) -> dict[str, ModePrediction]:
    """Predictions by mode; a mode that the profile cannot predict is left out.

    Args:
        graph: captured graph.
        before: kernels of the eager pass.
        after: kernels of the compiled pass.
        profile: profile of the hardware.
        work: images and arithmetic of a call.

    Raises:
        ProfileError: the profile lacks costs or intervals, or they give impossible times.
    """
    eager, compiled = before.trace, after.trace
    eager_kernels, compiled_kernels = before.estimates, after.estimates
    unruled = max(_unruled_width(eager, eager_kernels), _unruled_width(compiled, compiled_kernels))
    timed = TimedTrace.of(eager, eager_kernels), TimedTrace.of(compiled, compiled_kernels)
    hosts = [_as_compiled(graph, timings) for timings in _timings_by_host(timed, profile)]
    timings = hosts[0]
    latency_widths, speedup_widths = profile.intervals("latency"), profile.intervals("speedup")
    if "eager" not in latency_widths:
        raise ProfileError(f"{profile.name}: the profile has no interval for eager execution; train it again")
    extra = UNKNOWN_WIDTH * graph.partial + unruled
    base = timings["eager"]
    both = ((eager, eager_kernels), (compiled, compiled_kernels))
    unsure_speedup = speedup_width(*(_keyed(*each) for each in both)) + extra
    modes = {}
    for mode, timing in timings.items():
        if mode not in latency_widths or (mode != "eager" and mode not in speedup_widths):
            continue
        if mode == "reduce-overhead" and graph.partition is None and graph.breaks:
            continue  # how many CUDA graphs there are is not known
        if mode == "reduce-overhead" and graph.partition is not None and graph.partition.reads_kept:
            continue  # it raises an error
        unsure = kernel_width(eager_kernels if mode == "eager" else compiled_kernels) + extra
        low, high = (us / 1e3 for us in latency_bounds(hosts, mode, latency_widths[mode] + unsure))
        common = (timing.latency_us / 1e3, low, high, timing.host_us / 1e3, timing.device_us / 1e3)
        achieved = _achieved(timing.latency_us, before if mode == "eager" or not is_compiled(graph) else after, work)
        if mode == "eager":
            modes[mode] = ModePrediction(*common, **achieved)
            continue
        speedup = base.latency_us / timing.latency_us
        speedups = speedup, *speedup_bounds(hosts, mode, speedup_widths[mode] + unsure_speedup)
        compiling = compile_fields(compiled, mode, modes["eager"], speedups, profile)
        modes[mode] = ModePrediction(*common, *speedups, **compiling | achieved)
    return modes


def _achieved(latency_us: float, kernels: TimedKernels, work: Work) -> dict[str, Any]:
    """Fields of a mode about throughput: beside the roofline of its kernels, images and arithmetic a second."""
    return {
        "roofline_ms": roofline_us(kernels.parts) / 1e3,
        "images_per_s": work.images / latency_us * 1e6,
        "tflops": work.flops / latency_us / 1e6,
    }


def _keyed(trace: IssueTrace, estimates: Sequence[Estimate]) -> list[KeyedEstimate]:
    return [(kernel.key, one) for kernel, one in zip(trace.kernels, estimates, strict=True)]


def _timings_by_host(timed: tuple[TimedTrace, TimedTrace], profile: Profile) -> list[dict[str, queue.Timing]]:
    """Times in each mode on each host that the intervals cover, the predicted host first."""
    needed = CPU_COSTS if profile.on_cpu else COSTS
    found = []
    for speed in profile.host_speeds:
        tables = {name: profile.costs(name, costs, speed) for name, costs in needed.items()}
        timings = profile.residual_model.correct(gpu.timings(*timed, tables), *timed)
        _check_timings(timings, profile)
        found.append(timings)
    return found


def _as_compiled(graph: Graph, timings: dict[str, queue.Timing]) -> dict[str, queue.Timing]:
    """Timings of a model as they are, unless compilation leaves it as it is or fails, with no compiled modes then."""
    if is_compiled(graph):
        return timings
    modes = ("eager",) if graph.partition and graph.partition.failure else tuple(timings)
    return dict.fromkeys(modes, timings["eager"])


def _check_timings(timings: Mapping[str, queue.Timing], profile: Profile) -> None:
    """Refuse impossible times: each cost may be possible on its own, and their sum not."""
    for mode, timing in timings.items():
        parts_us = timing.latency_us, timing.host_us, timing.device_us
        if not all(0 <= us < math.inf for us in parts_us) or not timing.latency_us:
            latency, host, device = (f"{us:g} us" for us in parts_us)
            raise ProfileError(
                f"{profile.path / CARD}: its costs give {mode} a latency of {latency}, a host time of {host} and a "
                f"device time of {device}; train the profile again"
            )


def _unruled_width(trace: IssueTrace, estimates: Sequence[Estimate]) -> float:
    """Addition to the half-width of an interval for operators without a cost rule, by their share of the time.

    The logarithm of the whole time if they take UNRULED_FACTOR times as long as they are counted with.
    """
    total = sum(estimate.us for estimate in estimates)
    unruled = sum(one.us for kernel, one in zip(trace.kernels, estimates, strict=True) if is_unruled(kernel))
    return math.log1p((UNRULED_FACTOR - 1.0) * unruled / max(1e-9, total))
