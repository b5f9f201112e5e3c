"""`costmodel validate MODEL`: predicted latencies beside latencies measured on this machine."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costmodel.cli import options
from costmodel.cli.completion import complete_modes
from costmodel.cli.output import choose_hardware, note, opened, render_result, running_user_code
from costmodel.cli.run import MISSED
from costmodel.cli.torch_options import arithmetic_of
from costmodel.errors import RequestError

if TYPE_CHECKING:
    import torch

    from costmodel.planning.plan import Plan
    from costmodel.prediction.arithmetic import Arithmetic
    from costmodel.zoo import Loaded

ModesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="Mode to measure; repeat for several. Default: default and reduce-overhead.",
        autocompletion=complete_modes,
    ),
]
PlanOption = Annotated[
    Path | None, typer.Option("--plan", metavar="PLAN.json", help="Plan to measure; default: a new one.")
]
NoPlan = Annotated[bool, typer.Option("--no-plan", help="Measure the modes only.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda or cuda:N; default: the GPU, if there is one.")]
MaxError = Annotated[
    float | None,
    typer.Option("--max-error", metavar="PCT", help="Exit with status 1 if a predicted speedup is off by more."),
]
LayersOption = Annotated[
    options.Layers,
    typer.Option(
        "--layers",
        help="Also measure layers inside the eager and compiled model, and the plan's regions; JSON holds all or none.",
    ),
]
Seconds = Annotated[float, typer.Option("--seconds", help="Seconds per mode in each of seven rounds.")]


def validate(
    model: options.Model,
    hardware: options.Hardware = None,
    batch_size: options.BatchSize = None,
    img_size: options.ImgSize = None,
    precision: options.PrecisionOption = None,
    channels_last: options.ChannelsLast = False,
    training: options.Training = False,
    optimizer: options.OptimizerOption = None,
    amp: options.AmpOption = None,
    matmul_precision: options.MatmulPrecisionOption = options.MatmulPrecision.HIGHEST,
    cudnn_benchmark: options.CudnnBenchmark = False,
    modes: ModesOption = None,
    plan: PlanOption = None,
    no_plan: NoPlan = False,
    device: Device = "",
    max_error: MaxError = None,
    seconds: Seconds = 0.1,
    layers: LayersOption = options.Layers.NONE,
    format: options.FormatOption = None,  # noqa: A002 - the name of the option
    output: options.Output = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Measure MODEL on this machine in eager mode, compiled and as planned, and compare with the predictions."""
    _check(seconds, max_error, plan, no_plan)
    step = _step(training, optimizer, plan)
    # torch reads it when it is imported; its profiler would otherwise log to standard error
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with opened(output) as write:
        profile = choose_hardware(hardware, quiet)
        settings = arithmetic_of(amp, matmul_precision, cudnn_benchmark, precision=precision, profiles=[profile])
        from costmodel.measurement.step_validation import validate_step as compare_step
        from costmodel.measurement.validation import USUAL
        from costmodel.measurement.validation import validate as compare
        from costmodel.measurement.validation_report import validation_document

        place = _device(device, profile)
        note(_duration(modes or USUAL, place.type, seconds), quiet)
        given = _given(plan)
        with running_user_code(model):
            loaded = _loaded(
                model,
                place,
                batch_size=batch_size,
                img_size=img_size,
                precision=precision and precision.value,
                channels_last=channels_last,
            )
            for text in loaded.warnings if step is None else ():
                note(text, quiet)
            common: dict[str, Any] = {"hardware": profile, "model_name": model}
            common |= {"modes": modes or USUAL, "seconds": seconds}
            if step is not None:
                result = compare_step(loaded.module, tuple(loaded.inputs), **common, **step, **asdict(settings))
            else:
                if given is None and not no_plan:
                    given = _new_plan(loaded, place, profile, quiet, settings)
                common |= {"layers": layers is not options.Layers.NONE, **asdict(settings)}
                result = compare(loaded.module, tuple(loaded.inputs), plan=given, **common)
        write(render_result(validation_document(result, layers.value), format, output))
    if max_error is not None and 100 * result.worst_error > max_error:
        raise typer.Exit(MISSED)


def _check(seconds: float, max_error: float | None, plan: Path | None, no_plan: bool) -> None:
    """Refuse options that are impossible, alone or together.

    Raises:
        RequestError: names the option.
    """
    if not 0 < seconds < math.inf:
        raise RequestError(f"--seconds must be above 0, not {seconds}")
    if max_error is not None and not 0 <= max_error < math.inf:
        raise RequestError(f"--max-error must be a percentage, not {max_error}")
    if no_plan and plan is not None:
        raise RequestError("--plan and --no-plan exclude each other; leave one out")


def _step(training: bool, optimizer: str | None, plan: Path | None) -> dict[str, Any] | None:
    """Options of a training step; None for a forward pass.

    Raises:
        RequestError: an option of training without --training, or a plan with it.
    """
    from costmodel.prediction.training_request import requested

    request = requested(training, optimizer)
    if request is None:
        return None
    if plan is not None:
        raise RequestError("a plan is of a forward pass; leave out --plan or --training")
    return {"optimizer": request.optimizer}


def _device(name: str, hardware: str) -> torch.device:
    """Device of a name, in the state in which the profile was measured."""
    from costmodel.measurement.cpu_determinism import make_cpu_deterministic
    from costmodel.measurement.validation import resolve_device
    from costmodel.profiles.profile import load_profile

    on_cpu = load_profile(hardware).on_cpu
    device = resolve_device(_device_name(name, on_cpu))
    if on_cpu:
        make_cpu_deterministic(device.type)
    return device


def _given(path: Path | None) -> Plan | None:
    from costmodel.planning.plan import Plan

    return None if path is None else Plan.load(path)


def _loaded(model: str, device: torch.device, **request: Any) -> Loaded:
    """Model with weights and positional inputs on a device.

    Raises:
        RequestError: it takes keyword inputs.
    """
    from costmodel.zoo import load_real

    loaded = load_real(model, device, **request)
    if isinstance(loaded.inputs, dict):
        raise RequestError(f"{model} takes keyword inputs, which can be predicted but not measured yet")
    return loaded


def _new_plan(loaded: Loaded, device: torch.device, hardware: str, quiet: bool, settings: Arithmetic) -> Plan | None:
    """Plan of a model on a GPU; None on a CPU, with a note."""
    from costmodel.planning.api import plan

    if device.type == "cuda":
        return plan(loaded.module, loaded.inputs, hardware=hardware, model_name=loaded.name, **asdict(settings))
    note("no plan is made for a CPU; give --plan PLAN.json to measure one", quiet)
    return None


def _device_name(device: str, on_cpu: bool) -> str:
    """Name of the device to measure: the one given, else the CPU for the profile of a CPU, else the GPU.

    Raises:
        RequestError: there is no GPU, and compiling on a CPU takes so long that it has to be asked for.
    """
    import torch

    if not (device or on_cpu or torch.cuda.is_available()):
        raise RequestError(
            "torch sees no GPU here; give --device cpu to measure on the CPU, where compiling takes minutes a mode"
        )
    return device or ("cpu" if on_cpu else "")


def _duration(modes: Sequence[str], device: str, seconds: float) -> str:
    """Line that says what will be measured, and how long it takes."""
    from costmodel.measurement.validation import ROUNDS

    compiling = "up to a minute" if device == "cuda" else "some minutes, and ten for a large model"
    measuring = ROUNDS * seconds * (1 + len(modes))
    listed = ", ".join(("eager", *modes))
    return (
        f"measuring {listed} on {device}: compiling takes {compiling}, for each mode; then {measuring:.0f} s of rounds"
    )
