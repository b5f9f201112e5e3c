"""`costmodel predict MODEL...`: latency in eager and compiled modes; nothing runs."""

from __future__ import annotations

import gc
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from costmodel.cli import options, streams
from costmodel.cli.output import Write, choose_hardware, opened, running_user_code, terminal_width, use_color
from costmodel.cli.run import WRONG_REQUEST, complain, message_of, print_traceback
from costmodel.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from costmodel.report import Report


def predict(
    models: options.Models,
    hardware: options.Hardware = None,
    batch_size: options.BatchSize = None,
    img_size: options.ImgSize = None,
    precision: options.PrecisionOption = None,
    channels_last: options.ChannelsLast = False,
    format: options.FormatOption = options.Format.TABLE,  # noqa: A002 - the name of the option
    layers: options.LayersOption = None,
    explain: options.Explain = False,
    shapes: options.Shapes = None,
    capture: options.CaptureOption = options.Capture.RUN,
    check: options.Check = True,
    host: options.Host = None,
    jobs: options.Jobs = 1,
    output: options.Output = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict latency, speedup and compile time of each MODEL under torch.compile. Runs nothing."""
    from costmodel.profiles.hosts import resolve_host
    from costmodel.profiles.profile import load_profile
    from costmodel.report.progress import tracked

    if len(models) > 1:
        gc.enable()
    if quiet:
        warnings.simplefilter("ignore")
    with opened(output) as write:
        profile = choose_hardware(hardware, quiet)
        reports: list[Report] = []
        failures: list[str] = []
        resolve_host(host, load_profile(profile))  # an unknown host is refused once, not for every model
        following = parse_shapes(shapes, explain)
        kind = precision and precision.value
        how: tuple[Any, ...] = (profile, batch_size, img_size, kind, channels_last, explain, host, following)
        how += (capture.value, check, quiet)
        quiet_bar = quiet or len(models) == 1
        for found in tracked(_attempts(models, how, jobs, debug), "predicting model", len(models), quiet=quiet_bar):
            if isinstance(found, str):
                failures.append(found)
            else:
                reports.append(found)
        if reports:
            _write(write, reports[0] if len(models) == 1 else reports, format, layers, output)
    for failure in failures:
        complain(failure)
    if failures:
        raise typer.Exit(WRONG_REQUEST)


def _predict_one(
    spec: str,
    hardware: str,
    batch_size: int | None,
    img_size: int | None,
    precision: str | None,
    channels_last: bool,
    explain: bool,
    host: str | None,
    shapes: Sequence[tuple[int, ...]],
    frontend: str,
    check: bool,
    quiet: bool,
) -> Report:
    from costmodel.capture.frontends import convert
    from costmodel.capture.with_partition import capture_with_partition
    from costmodel.cli.checking import checking
    from costmodel.prediction.predict import predict_captured
    from costmodel.zoo import load

    request: dict[str, Any] = {"batch_size": batch_size, "img_size": img_size}
    request |= {"precision": precision, "channels_last": channels_last}
    with running_user_code(spec):
        loaded = load(spec, **request)
        module = loaded.module if frontend in ("run", "dynamo") else convert(loaded.module, loaded.inputs, frontend)
        how = checking(spec, request, check=check or frontend == "dynamo", quiet=quiet)
        if frontend != "run":
            how["is_whole"] = False
        graph = capture_with_partition(module, loaded.inputs, loaded.name, **how, compiled=loaded.module)
    report = predict_captured(graph, loaded.inputs, hardware=hardware, explain=explain, host=host, shapes=shapes)
    return replace(report, warnings=(*loaded.warnings, *report.warnings))


def parse_shapes(text: str | None, explain: bool) -> tuple[tuple[int, ...], ...]:
    """Shapes listed as `8x3x224x224,32x3x224x224`.

    Raises:
        RequestError: the text is no such list, or --explain is absent.
    """
    if text is None:
        return ()
    if not explain:
        raise RequestError("--shapes needs --explain, which shows the recompilations; give both")
    if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*(,[1-9]\d{0,8}(x[1-9]\d{0,8})*)*", text):
        raise RequestError(f"impossible shapes {text!r}; give sizes like 8x3x224x224,32x3x224x224")
    return tuple(tuple(map(int, shape.split("x"))) for shape in text.split(","))


def _attempts(models: Sequence[str], how: tuple[Any, ...], jobs: int, debug: bool) -> Iterator[Report | str]:
    """A report for each model in order, or an error message; in several processes if `jobs` is above 1.

    Raises:
        CostmodelError: there is one model, and it cannot be predicted.
    """
    if len(models) == 1:
        yield _predict_one(models[0], *how)
    elif jobs == 1:
        yield from (_attempt((index, spec, how, debug)) for index, spec in enumerate(models))
    else:
        from collectors.processes.process_pool import in_parallel

        numbered = [(index, spec, how, debug) for index, spec in enumerate(models)]
        done: dict[int, Report | str] = {}
        following = 0
        for (index, spec, *_), found in in_parallel(
            _attempt, numbered, min(jobs, len(models)), math.inf, {}, hang_seconds=math.inf
        ):
            done[index] = f"{spec}: {message_of(found)}" if isinstance(found, BaseException) else found
            while following in done:  # in the order of the arguments
                yield done.pop(following)
                following += 1


def _attempt(job: tuple[int, str, tuple[Any, ...], bool]) -> Report | str:
    _, spec, how, debug = job
    streams.set_apart()  # a worker process has streams of its own
    try:
        return _predict_one(spec, *how)
    except Exception as error:  # noqa: BLE001 - one model's fault must not stop the others
        if debug:
            print_traceback()
        return f"{spec}: {message_of(error)}"


def _write(
    write: Write,
    reports: Report | Sequence[Report],
    format: options.Format,  # noqa: A002
    layers: options.Layers | None,
    output: Path | None,
) -> None:
    from costmodel.report import render

    width = terminal_width(output)
    write(render(reports, format.value, layers=layers and layers.value, width=width, color=use_color(width)))
