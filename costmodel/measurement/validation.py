"""Measure modes of torch.compile and plans, interleaved, and compare them with the prediction."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from costmodel import checks
from costmodel.capture.executable import Exact, capture_exactly
from costmodel.capture.inputs import inputs_in_a_row_fault, module_fault
from costmodel.capture.trace import tensors_in
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import CostmodelError, RequestError, first_line, text_of
from costmodel.execution.inductor_compile import share_cache
from costmodel.execution.numerics import random_like, worst_error
from costmodel.execution.planned_module import Planned, apply
from costmodel.execution.preconditions import device_of
from costmodel.execution.torch_settings import torch_settings, under_autocast
from costmodel.measurement.layer_timing import measure_layers, measure_regions
from costmodel.measurement.timers import host_probe, latency
from costmodel.measurement.validation_report import LayerResult, ModeResult, Validation
from costmodel.planning.plan import Plan
from costmodel.prediction.arithmetic import AMP, HIGHEST, MATMUL_PRECISIONS, Arithmetic
from costmodel.prediction.predict import predict
from costmodel.profiles.hosts import speed_of
from costmodel.profiles.profile import load_profile, resolve_default
from costmodel.report.progress import tracked
from costmodel.report.types import Report

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""Modes of torch.compile that `validate` can measure."""
USUAL = ("default", "reduce-overhead")
ROUNDS = 7
RESAMPLES = 1000
_PLAN = checks.instance_of(Plan, "a Plan, as costmodel.plan makes it")


@takes_turns
@checked(
    module=module_fault,
    inputs=inputs_in_a_row_fault,
    plan=checks.optional(_PLAN),
    others=checks.optional(checks.named(_PLAN, "plans by name")),
    hardware=checks.optional(checks.profile_name),
    model_name=checks.optional(checks.text),
    modes=checks.some_of(MODES),
    seconds=checks.positive_finite,
    host=checks.optional(checks.host),
    layers=checks.flag,
    amp=checks.optional(checks.one_of(AMP)),
    matmul_precision=checks.one_of(MATMUL_PRECISIONS),
    cudnn_benchmark=checks.flag,
)
def validate(
    module: nn.Module,
    inputs: Sequence[Any],
    *,
    plan: Plan | None = None,
    others: Mapping[str, Plan] | None = None,
    hardware: str | None = None,
    model_name: str | None = None,
    modes: Sequence[str] = USUAL,
    seconds: float = 0.1,
    host: str | float | None = None,
    layers: bool = False,
    amp: str | None = None,
    matmul_precision: str = HIGHEST,
    cudnn_benchmark: bool = False,
) -> Validation:
    """Measure a module in eager execution, torch.compile's modes and plans, and compare with the prediction.

    Args:
        module: in evaluation mode, on the device to measure.
        inputs: positional inputs; the measurement uses random tensors of the same shapes and dtypes.
        plan: plan to measure too, under the name `plan`.
        others: further plans to measure, by name.
        hardware: name of the profile; None for this machine's GPU if there is a profile for it, else the default.
        model_name: name of the model in the result; None for its class.
        modes: names from MODES.
        seconds: duration of measuring one mode in each of the seven rounds.
        host: calibrated host to predict for, by name or speed; None to probe this one.
        layers: whether to measure every region of the plan, and every layer of the eager and the compiled model too.
            They come last, for on a GPU the profiler stays attached to the process and slows its launches.
        amp: `float16` or `bfloat16` for calls under `torch.autocast` of the device, eager and compiled ones each in a
            region of their own; None for none. A plan for calls under autocast is called without a region.
        matmul_precision: what `torch.set_float32_matmul_precision` is set to while the model is measured.
        cudnn_benchmark: what `torch.backends.cudnn.benchmark` is set to; both settings are restored afterwards. Torch
            keeps the algorithm of a convolution's first call in a process, so measure each setting in a process of its
            own (`benchmark_cache` in ATen's Conv_v8.cpp).

    Raises:
        RequestError: an unknown mode or host; a setting of GPUs with a CPU's profile, or a plan for other settings.
        PlanError: the plan does not fit.
    """
    plans = ({"plan": plan} if plan is not None else {}) | dict(others or {})
    device = device_of(module, inputs)
    chosen = resolve_default()[0] if hardware is None else hardware
    arithmetic = Arithmetic(amp, matmul_precision, cudnn_benchmark)
    arithmetic.check_device(load_profile(chosen))  # refuse it, or a damaged profile, before measuring
    _refuse_other_settings(plans, arithmetic)
    example = tuple(random_like(item, device) if isinstance(item, torch.Tensor) else item for item in inputs)
    share_cache()
    captured, capture_s = _captured(module, example, amp) if plans else (None, 0.0)
    with torch.no_grad(), torch_settings(arithmetic):
        runs = {"eager": Run.of(lambda: under_autocast(module, device.type, amp), example, device)}
        for mode in modes:
            runs[mode] = Run.of(partial(_compiled, module, mode, device.type, amp), example, device)
        for name, one in plans.items():
            runs[name] = Run.of(partial(apply, module, one, example, captured=captured), example, device, capture_s)
        interleave(runs, seconds, device.type)
    host = (
        this_host_speed(chosen, device) if host is None else host
    )  # probed last, when the process is as warm as during the measurement
    settings: dict[str, Any] = dataclasses.asdict(arithmetic)
    report = predict(module, inputs, hardware=chosen, model_name=model_name, host=host, **settings)
    predicted = {mode: found.latency_ms for mode, found in report.modes.items()}
    predicted |= {name: one.latency_ms["plan"] for name, one in plans.items()}
    eager = runs["eager"]
    planned = runs["plan"].runner if plan is not None else None
    return Validation(
        model=report.model,
        hardware=chosen,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        input_shape=report.input_shape,
        precision=report.precision,
        modes={name: run.result(predicted.get(name), eager) for name, run in runs.items()},
        replaced=tuple(r.layers[0] for r, _ in planned.replaced if r.layers) if isinstance(planned, Planned) else (),
        host_speed=report.host_speed,
        arithmetic=report.arithmetic,
        **(_measured_layers(module, runs, example, report, arithmetic) if layers else {}),
    )


def _compiled(module: nn.Module, mode: str, device_type: str, amp: str | None) -> Callable[..., Any]:
    """A compiled module, called under autocast as users write it: the region is around the compiled call."""
    return under_autocast(torch.compile(module, mode=mode), device_type, amp)


def _refuse_other_settings(plans: Mapping[str, Plan], arithmetic: Arithmetic) -> None:
    """Refuse a plan for other casts or another precision of matmuls.

    Raises:
        RequestError: names both settings.
    """
    for name, plan in plans.items():
        if (plan.amp, plan.arithmetic.has_tf32) != (arithmetic.amp, arithmetic.has_tf32):
            made, wanted = (one.words or "torch's default settings" for one in (plan.arithmetic, arithmetic))
            raise RequestError(
                f"the plan {name!r} was made for {made}, and is to be measured under {wanted}; measure it "
                "under its own settings, or make the plan again"
            )


def _measured_layers(
    module: nn.Module, runs: Mapping[str, Run], example: tuple[Any, ...], report: Report, arithmetic: Arithmetic
) -> dict[str, tuple[LayerResult, ...]]:
    """Measured layers and regions, by the names of fields of `Validation`."""
    planned, default = (runs[name].runner if name in runs else None for name in ("plan", "default"))
    with torch_settings(arithmetic):
        regions = measure_regions(planned, example) if isinstance(planned, Planned) else ()
        device = load_profile(report.hardware).device
        eager, compiled = measure_layers(module, default, example, report, device, arithmetic.amp)
    return {"layers": eager, "compiled_layers": compiled, "regions": regions}


def this_host_speed(hardware: str, device: torch.device) -> float | None:
    """Launch speed of this host relative to the profile's; None for a CPU."""
    profile = load_profile(hardware)
    if device.type != "cuda" or "host" not in profile.card:
        return None
    return speed_of(host_probe(str(device)), profile)


def _captured(module: nn.Module, example: tuple[Any, ...], amp: str | None) -> tuple[Exact | None, float]:
    """Capture a module before its first call, which may change it; the captured pass, and seconds of capture.

    The pass is None if the capture fails; applying a plan then raises the error.
    """
    start = time.perf_counter()
    with suppress(CostmodelError):
        return capture_exactly(module, example, type(module).__name__, amp), time.perf_counter() - start
    return None, 0.0


class Run:
    """One mode or plan, while it is measured.

    Attributes:
        call: call that is measured; None where it failed.
        note: why.
        runner: function that it calls.
        compile_s: duration of the first call.
        peak_bytes: peak memory of a call; None on a CPU.
        rounds_us: median latency of each round.
        outputs: tensors that the first call returned.
    """

    def __init__(self, call: Callable[[], object] | None, note: str = "") -> None:
        self.call = call
        self.note = note
        self.runner: Callable[..., Any] | None = None
        self.compile_s: float | None = None
        self.peak_bytes: int | None = None
        self.output_error: float | None = None
        self.rounds_us: list[float] = []
        self.outputs: list[torch.Tensor] = []

    @classmethod
    def of(
        cls,
        make: Callable[[], Callable[..., Any]],
        example: tuple[Any, ...],
        device: torch.device,
        before_s: float = 0.0,
    ) -> Run:
        """Make and call a runner for the first time; if that fails, the error becomes a note.

        Args:
            make: makes the runner.
            example: inputs of the call.
            device: device to measure.
            before_s: earlier time that counts as compile time.
        """
        start = time.perf_counter()
        try:
            runner = make()
            run = cls(lambda: runner(*example))
            run.outputs = [output.clone() for output in tensors_in(runner(*example))]
        except Exception as error:  # noqa: BLE001 - a compiler may raise anything; the other modes go on
            return cls(None, f"{type(error).__name__}: {first_line(text_of(error))}")
        synchronize(device)
        run.runner, run.compile_s = runner, before_s + time.perf_counter() - start
        runner(*example)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            runner(*example)
            run.peak_bytes = torch.cuda.max_memory_allocated(device)
        return run

    def result(self, predicted_ms: float | None, eager: Run) -> ModeResult:
        """Result: measured beside predicted."""
        if not self.rounds_us:
            return ModeResult(predicted_ms, None, note=self.note)
        low, high = bootstrap(self.rounds_us)
        ratios = [a / b for a, b in zip(eager.rounds_us, self.rounds_us, strict=True)]
        compared = self is not eager
        slow, fast = bootstrap(ratios)
        return ModeResult(
            predicted_ms=predicted_ms,
            measured_ms=statistics.median(self.rounds_us) / 1e3,
            low_ms=low / 1e3,
            high_ms=high / 1e3,
            speedup=statistics.median(ratios) if compared else None,
            speedup_low=slow if compared else None,
            speedup_high=fast if compared else None,
            compile_s=self.compile_s if compared else None,
            peak_bytes=self.peak_bytes,
            output_error=worst_error(self.outputs, eager.outputs) if compared else None,
            note=self.note,
        )


def resolve_device(name: str) -> torch.device:
    """Look up a device by name; the GPU, if there is one, for the empty name.

    Raises:
        RequestError: the name is unknown, or this machine has no such device.
    """
    if not name:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise RequestError(f"unknown device {name!r}; choose cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise RequestError(f"there is no device {name} here; torch sees {torch.cuda.device_count()} GPUs")
    return device


def synchronize(device: torch.device) -> None:
    """Wait for a GPU; do nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def interleave(runs: Mapping[str, Run], seconds: float, device: str) -> None:
    """Measure all runs in turn, round after round, so that drift of the machine affects all alike."""
    for _ in tracked(range(ROUNDS), "measuring: round"):
        for run in runs.values():
            if run.call is not None:
                run.rounds_us.append(latency(run.call, seconds, device=device).median_us)


def bootstrap(samples: Sequence[float]) -> tuple[float, float]:
    """Compute the 95 % interval of the median by resampling (Efron, "Bootstrap methods", 1979); seeded."""
    generator = np.random.default_rng(0)
    drawn = generator.choice(np.asarray(samples), size=(RESAMPLES, len(samples)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)
