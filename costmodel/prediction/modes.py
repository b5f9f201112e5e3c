"""Timings of an issue trace -> predictions of each mode, with intervals and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from costmodel.errors import ProfileError
from costmodel.ir import Graph
from costmodel.predictor.predictor import Estimate
from costmodel.profiles.card import CARD
from costmodel.profiles.profile import Profile
from costmodel.report.types import ModePrediction
from costmodel.timeline import gpu, host_counts, queue
from costmodel.timeline.cost_tables import COSTS, CPU_COSTS
from costmodel.timeline.graphs import is_compiled
from costmodel.timeline.issue_trace import IssueTrace, compile_counts
from costmodel.timeline.timed_trace import TimedTrace

UNKNOWN_WIDTH = 0.5
"""Largest addition to the half-width of an interval for unsupported operators and data-dependent control flow."""
UNKNOWN_SHARE = 0.1
"""Share of operators without a cost rule from which all of UNKNOWN_WIDTH is added."""
EXTRAPOLATED_WIDTH = 0.5
"""Addition to the half-width if all time is in extrapolated kernels; less in proportion to their share."""


def predict_modes(
    graph: Graph,
    eager: IssueTrace,
    compiled: IssueTrace,
    eager_kernels: Sequence[Estimate],
    compiled_kernels: Sequence[Estimate],
    profile: Profile,
    unsupported: int,
) -> dict[str, ModePrediction]:
    """Predictions by mode; a mode that the profile cannot predict is left out.

    Args:
        graph: captured graph.
        eager: eager issue trace.
        compiled: compiled issue trace.
        eager_kernels: estimates of the eager kernels.
        compiled_kernels: estimates of the compiled kernels.
        profile: profile of the hardware.
        unsupported: number of unsupported operators and places.

    Raises:
        ProfileError: the profile lacks costs or intervals, or they give impossible times.
    """
    needed = CPU_COSTS if profile.on_cpu else COSTS
    tables = {name: profile.costs(name, costs) for name, costs in needed.items()}
    unknown = 1.0 if graph.partial else min(1.0, unsupported / UNKNOWN_SHARE / max(1, len(graph.ops)))
    timed = TimedTrace.of(eager, eager_kernels), TimedTrace.of(compiled, compiled_kernels)
    timings = profile.residual_model.correct(gpu.timings(*timed, tables), *timed)
    if not is_compiled(graph):
        timings = _eager_throughout(graph, timings)
    _check_timings(timings, profile)
    latency_widths, speedup_widths = profile.intervals("latency"), profile.intervals("speedup")
    if "eager" not in latency_widths:
        raise ProfileError(f"{profile.name}: the profile has no interval for eager execution; train it again")
    extra = UNKNOWN_WIDTH * unknown + _range_width(eager_kernels, compiled_kernels)
    compile_s = host_counts.compile_us(compile_counts(compiled.kernels), tables["compile"]) / 1e6
    base = timings["eager"]
    modes = {}
    for mode, timing in timings.items():
        if mode not in latency_widths or (mode != "eager" and mode not in speedup_widths):
            continue
        if mode == "reduce-overhead" and graph.partition is None and graph.breaks:
            continue  # how many CUDA graphs there are is not known
        spread = math.exp(latency_widths[mode] + extra)
        latency = timing.latency_us / 1e3
        common = (latency, latency / spread, latency * spread, timing.host_us / 1e3, timing.device_us / 1e3)
        if mode == "eager":
            modes[mode] = ModePrediction(*common)
            continue
        speedup = base.latency_us / timing.latency_us
        wide = math.exp(speedup_widths[mode] + extra)
        saved = (base.latency_us - timing.latency_us) / 1e6
        calls = math.ceil(compile_s / saved) if saved > 0 else None
        modes[mode] = ModePrediction(*common, speedup, speedup / wide, speedup * wide, compile_s, calls)
    return modes


def _eager_throughout(graph: Graph, timings: Mapping[str, queue.Timing]) -> dict[str, queue.Timing]:
    """Timings of a model that compilation leaves as it is, or of which it raises an error: no compiled modes then."""
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


def _range_width(*groups: Sequence[Estimate]) -> float:
    """Addition to the half-width of an interval for extrapolated kernels, by their share of the time."""
    share = 0.0
    for estimates in groups:
        total = sum(estimate.us for estimate in estimates)
        outside = sum(estimate.us for estimate in estimates if not estimate.in_range)
        share = max(share, outside / max(1e-9, total))
    return EXTRAPOLATED_WIDTH * share


def verdict_of(modes: Mapping[str, ModePrediction], trusted: bool) -> str:
    """`compile`, `leave` or `uncertain`.

    Args:
        modes: predictions by mode.
        trusted: whether everything is supported, measured and fits in memory.
    """
    compiled = [mode for name, mode in modes.items() if name != "eager"]
    if not trusted or not compiled:
        return "uncertain"
    best = max(compiled, key=lambda mode: mode.speedup or 0.0)
    if best.speedup_low is not None and best.speedup_low > 1.0:
        return "compile"
    return "leave" if all((mode.speedup_high or 0.0) < 1.0 for mode in compiled) else "uncertain"
