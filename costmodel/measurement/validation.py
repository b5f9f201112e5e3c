"""Measures what was predicted: modes of torch.compile and a plan, interleaved, on the machine at hand."""

from __future__ import annotations

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
from costmodel.execution.runner import device_of
from costmodel.measurement.layer_timing import measure_layers, measure_regions
from costmodel.measurement.timers import host_probe, latency
from costmodel.measurement.validation_report import LayerResult, ModeResult, Validation
from costmodel.planning.plan import Plan
from costmodel.prediction.predict import predict
from costmodel.profiles.hosts import speed_of
from costmodel.profiles.profile import load_profile, resolve_default
from costmodel.report.progress import tracked
from costmodel.report.types import Report

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""Modes of torch.compile that can be measured."""
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
) -> Validation:
    """Runs a module eagerly, in torch.compile's modes and as planned, in turn, and compares with the prediction.

    Args:
        module: in evaluation mode, on the device to measure.
        inputs: positional inputs; the measurement runs on random ones like them.
        plan: measured too, if given, as `plan`.
        others: further plans to measure beside it, by the names that the result gives them.
        hardware: the profile that predicts; None for this machine's GPU if there is a profile for it, else the default.
        model_name: what the result calls the model; None for its class.
        modes: of MODES.
        seconds: of measuring a mode in a round; there are seven rounds.
        host: whose costs are predicted, by name or speed; None for this one, which is probed.
        layers: whether to measure every region of the plan, and every layer of the eager and of the compiled model,
            too; last, for on a GPU what profiles stays attached to the process, and slows its launches from then on.

    Raises:
        RequestError: an unknown mode or host.
        PlanError: the plan does not fit.
    """
    plans = ({"plan": plan} if plan is not None else {}) | dict(others or {})
    device = device_of(module, inputs)
    chosen = resolve_default()[0] if hardware is None else hardware
    load_profile(chosen)  # what is wrong with it is said before anything is measured
    example = tuple(random_like(item, device) if isinstance(item, torch.Tensor) else item for item in inputs)
    share_cache()
    captured, capture_s = _captured(module, example) if plans else (None, 0.0)
    with torch.no_grad():
        runs = {"eager": _Run.of(lambda: module, example, device)}
        for mode in modes:
            runs[mode] = _Run.of(partial(torch.compile, module, mode=mode), example, device)
        for name, one in plans.items():
            runs[name] = _Run.of(partial(apply, module, one, example, captured=captured), example, device, capture_s)
        _interleave(runs, seconds, device.type)
    host = this_host_speed(chosen, device) if host is None else host  # probed last, as warm as what was measured
    report = predict(module, inputs, hardware=chosen, model_name=model_name, host=host)
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
        **(_measured_layers(module, runs, example, report) if layers else {}),
    )


def _measured_layers(
    module: nn.Module, runs: Mapping[str, _Run], example: tuple[Any, ...], report: Report
) -> dict[str, tuple[LayerResult, ...]]:
    """The layers and the plan's regions, by the names that a validation has for them."""
    planned, default = (runs[name].runner if name in runs else None for name in ("plan", "default"))
    regions = measure_regions(planned, example) if isinstance(planned, Planned) else ()
    eager, compiled = measure_layers(module, default, example, report, load_profile(report.hardware).on_cpu)
    return {"layers": eager, "compiled_layers": compiled, "regions": regions}


def this_host_speed(hardware: str, device: torch.device) -> float | None:
    """How fast this machine's host is against a profile's own; None where only the CPU is measured."""
    profile = load_profile(hardware)
    if device.type != "cuda" or "host" not in profile.card:
        return None
    return speed_of(host_probe(str(device)), profile)


def _captured(module: nn.Module, example: tuple[Any, ...]) -> tuple[Exact | None, float]:
    """A module's pass as it is before its first call, which may leave something in it, and the seconds that took.

    None where it cannot be captured: applying a plan tells why.
    """
    start = time.perf_counter()
    with suppress(CostmodelError):
        return capture_exactly(module, example, type(module).__name__), time.perf_counter() - start
    return None, 0.0


class _Run:
    """One way of running the model, being measured."""

    def __init__(self, call: Callable[[], object] | None, note: str = "") -> None:
        self.call = call
        self.note = note
        self.runner: Callable[..., Any] | None = None
        self.compile_s: float | None = None
        self.peak_mb: float | None = None
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
    ) -> _Run:
        """Made and called for the first time, after what took `before_s`; where that fails, what is left is a note."""
        start = time.perf_counter()
        try:
            runner = make()
            run = cls(lambda: runner(*example))
            run.outputs = [output.clone() for output in tensors_in(runner(*example))]
        except Exception as error:  # noqa: BLE001 - a compiler may fail in any way, and the other modes go on
            return cls(None, f"{type(error).__name__}: {first_line(text_of(error))}")
        synchronize(device)
        run.runner, run.compile_s = runner, before_s + time.perf_counter() - start
        runner(*example)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            runner(*example)
            run.peak_mb = torch.cuda.max_memory_allocated(device) / 1e6
        return run

    def result(self, predicted_ms: float | None, eager: _Run) -> ModeResult:
        """What was measured, beside what was predicted."""
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
            peak_mb=self.peak_mb,
            output_error=worst_error(self.outputs, eager.outputs) if compared else None,
            note=self.note,
        )


def resolve_device(name: str) -> torch.device:
    """The device of that name; the GPU, if there is one, for the empty name.

    Raises:
        RequestError: no such device, or none here.
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
    """Waits for a GPU; a CPU has nothing to wait for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _interleave(runs: Mapping[str, _Run], seconds: float, device: str) -> None:
    """Every way in turn, round after round, so that a drift of the machine meets all alike."""
    for _ in tracked(range(ROUNDS), "measuring: round"):
        for run in runs.values():
            if run.call is not None:
                run.rounds_us.append(latency(run.call, seconds, device=device).median_us)


def bootstrap(samples: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median by resampling (Efron, "Bootstrap methods", 1979); seeded, so that it repeats."""
    generator = np.random.default_rng(0)
    drawn = generator.choice(np.asarray(samples), size=(RESAMPLES, len(samples)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)
