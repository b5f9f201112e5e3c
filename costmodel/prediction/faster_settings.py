"""Settings of torch that would pay, and what they do to numerics: matmuls in TF32, and autocast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from costmodel.errors import CaptureError
from costmodel.ir import HALF_PRECISION, Graph, operators
from costmodel.ir.op_table import Role
from costmodel.prediction.arithmetic import Arithmetic
from costmodel.prediction.layer_groups import layers_of
from costmodel.prediction.modes import Work, predict_modes
from costmodel.prediction.report_warnings import unmeasured_settings
from costmodel.prediction.timed_kernels import timed_kernels
from costmodel.profiles.profile import Profile, profile_of
from costmodel.report.types import ModePrediction, Reason
from costmodel.timeline.issue_trace import IssueTrace, issue_traces

TF32_GAIN = 1.05
"""Speedup from which matmuls in TF32 are worth a line."""
AMP_GAIN = 1.2
"""Speedup from which autocast is: it changes more."""
AMP = "float16"
"""Precision of autocast that is tried."""


def settings_that_pay(
    graph: Graph, profile: Profile, modes: Mapping[str, ModePrediction], under_amp: Graph | None = None
) -> tuple[Reason, ...]:
    """Settings that make a mode faster on a GPU.

    Args:
        graph: predicted graph.
        profile: profile that it was predicted with, under its settings.
        modes: the prediction.
        under_amp: the same pass captured under autocast in AMP; None if that is not of interest.
    """
    if profile.on_cpu:
        return ()
    return (*_tf32(graph, profile, modes), *(_autocast(under_amp, profile, modes) if under_amp else ()))


def graph_under_amp(
    graph: Graph, capture: Callable[[], Graph], arithmetic: Arithmetic, hardware: Sequence[str | None]
) -> Graph | None:
    """Capture a pass under autocast in AMP, if that may pay.

    Args:
        graph: the pass as it was captured.
        capture: captures it under autocast.
        arithmetic: settings that it was captured with.
        hardware: names of profiles, as for `profile_of`.

    Returns:
        The graph; None for a pass that is under autocast, has no float32 convolution or matmul, or cannot be captured
        so, and where no profile is a GPU's.
    """
    if arithmetic.amp is not None or not _is_float32(graph) or all(profile_of(name).on_cpu for name in hardware):
        return None
    try:
        return capture()
    except CaptureError:
        return None


def _is_float32(graph: Graph) -> bool:
    """Whether convolutions or matmuls compute in float32, and none in half precision."""
    dtypes = {op.type.dtype for op in graph.ops if operators.lookup(op).role is Role.EXTERN}
    return "float32" in dtypes and not dtypes & set(HALF_PRECISION)


def _tf32(graph: Graph, profile: Profile, modes: Mapping[str, ModePrediction]) -> list[Reason]:
    """Latency that matmuls in TF32 would save; nothing if they are set, or gain less than TF32_GAIN everywhere."""
    if profile.device.tf32:
        return []
    other = Arithmetic(matmul_precision="high", cudnn_benchmark=profile.device.cudnn_benchmark).on(profile)
    traces = issue_traces(graph, other.device)
    kernels = [kernel for trace in traces for kernel in trace.kernels]
    if not any(kernel.tf32 for kernel in kernels):
        return []
    gains = _gains(modes, _modes_of(graph, other, traces), TF32_GAIN)
    if not gains:
        return []
    unsure = "".join(f"; {line}" for line in unmeasured_settings(kernels, other))
    why = f'{gains} with torch.set_float32_matmul_precision("high"); '
    why += "operands then keep 10 bits of mantissa, a relative error of 5e-4 each, as in cuDNN's convolutions"
    return [Reason("setting", "matmuls in TF32", why + unsure)]


def _autocast(under_amp: Graph, profile: Profile, modes: Mapping[str, ModePrediction]) -> list[Reason]:
    """Latency that autocast would save; nothing if it gains less than AMP_GAIN everywhere."""
    gains = _gains(modes, _modes_of(under_amp, profile, issue_traces(under_amp, profile.device)), AMP_GAIN)
    if not gains:
        return []
    why = f'{gains} with torch.autocast("cuda", torch.{AMP}); operands and results of convolutions and matmuls then '
    why += "keep 10 bits of mantissa, a relative error of 5e-4 each, and overflow above 65,504; sums stay in float32"
    return [Reason("setting", f"autocast in {AMP}", why)]


def _modes_of(graph: Graph, profile: Profile, traces: tuple[IssueTrace, IssueTrace]) -> Mapping[str, ModePrediction]:
    """Modes of a graph, given its traces on the profile's device."""
    before, after = timed_kernels(graph, layers_of(graph), traces, profile)
    flops = sum(operators.flops(graph, op) for op in graph.ops)
    return predict_modes(graph, before, after, profile, Work(1, flops))


def _gains(modes: Mapping[str, ModePrediction], faster: Mapping[str, ModePrediction], least: float) -> str:
    """Latencies of the modes that gain, before and after; empty if none gains as much as a factor."""
    found = (
        f"{name} {mode.latency_ms:.3g} -> {faster[name].latency_ms:.3g} ms"
        for name, mode in modes.items()
        if name in faster and mode.latency_ms > least * faster[name].latency_ms
    )
    return ", ".join(found)
