"""`costmodel predict MODEL...`: latency in eager and compiled modes; nothing runs."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from costmodel.cli import options
from costmodel.cli.cases import Case, Failure, Predicted, Settings, cases_of, failure_lines, predict_case, predict_cases
from costmodel.cli.output import (
    Write,
    choose_hardware,
    form_of,
    note_releases,
    opened,
    terminal_width,
    use_color,
    use_unicode,
)
from costmodel.cli.page_facts import page_facts
from costmodel.cli.run import WRONG_REQUEST, complain
from costmodel.cli.torch_options import arithmetic_of
from costmodel.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from costmodel.report import Report
    from costmodel.report.page import PageFacts


def predict(
    context: typer.Context,
    models: options.Models,
    hardware: options.SeveralHardware = None,
    batch_size: options.BatchSizes = None,
    img_size: options.ImgSize = None,
    precision: options.PrecisionOption = None,
    channels_last: options.ChannelsLast = False,
    amp: options.AmpOption = None,
    matmul_precision: options.MatmulPrecisionOption = options.MatmulPrecision.HIGHEST,
    cudnn_benchmark: options.CudnnBenchmark = False,
    training: options.Training = False,
    optimizer: options.OptimizerOption = None,
    format: options.FormatOption = None,  # noqa: A002 - the name of the option
    layers: options.LayersOption = None,
    depth: options.Depth = None,
    sort: options.SortOption = None,
    top: options.Top = None,
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
    """Predict latency, speedup and compile time of each MODEL under torch.compile. Runs nothing.

    Several models, batch sizes or profiles make several cases; a table at the end ranks them.
    """
    from costmodel.prediction.training_request import requested
    from costmodel.report.page import NO_FACTS

    if quiet:
        warnings.simplefilter("ignore")
    form = form_of(format, output)
    with opened(output) as write:
        cases = cases_of(models, batch_size)
        profiles = tuple(dict.fromkeys(choose_hardware(name, quiet) for name in hardware or (None,)))
        is_single = len(cases) * len(profiles) == 1
        arithmetic = arithmetic_of(amp, matmul_precision, cudnn_benchmark, precision=precision, profiles=profiles)
        _check_host(host, profiles)
        step = requested(training, optimizer)
        if step is not None and (capture is not options.Capture.RUN or shapes is not None):
            raise RequestError(
                "--training captures a step by running it, at one shape; leave out --capture and --shapes"
            )
        settings = Settings(
            hardware=profiles,
            img_size=img_size,
            precision=precision and precision.value,
            channels_last=channels_last,
            arithmetic=arithmetic,
            explain=explain,
            host=host,
            shapes=parse_shapes(shapes, explain),
            frontend=capture.value,
            check=check,
            quiet=quiet,
            debug=debug,
            draw=form is options.Format.HTML and step is None,
            training=step,
        )
        outcomes = _outcomes(cases, settings, jobs)
        found = [outcome for outcome in outcomes if not isinstance(outcome, Failure)]
        if found:
            reports, drawings = [one.report for one in found], [one.drawing for one in found]
            is_page = form is options.Format.HTML
            facts = page_facts(context.obj or (), reports, drawings) if is_page else NO_FACTS
            tree = {"depth": depth, "sort": sort and sort.value, "top": top}
            _write(write, reports[0] if is_single else reports, form, layers, tree, output, facts)
            note_releases(profiles, quiet)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    for line in failure_lines(failures, cases, profiles):
        complain(line)
    if failures:
        raise typer.Exit(WRONG_REQUEST)


def _check_host(host: str | None, profiles: Sequence[str]) -> None:
    """Refuse an unknown host once, not for every model.

    Raises:
        RequestError: names the host.
    """
    from costmodel.profiles.hosts import resolve_host
    from costmodel.profiles.profile import load_profile

    for name in profiles:
        resolve_host(host, load_profile(name))


def _outcomes(cases: Sequence[Case], settings: Settings, jobs: int) -> list[Predicted | Failure]:
    """Predict cases in so many processes; a single prediction in this one, without collecting garbage."""
    from costmodel.report.progress import tracked

    if len(cases) * len(settings.hardware) == 1:
        return predict_case(cases[0], settings)
    gc.enable()
    attempts = predict_cases(cases, settings, jobs)
    followed = tracked(attempts, "predicting case", len(cases), quiet=settings.quiet or len(cases) == 1)
    return [outcome for several in followed for outcome in several]


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


def _write(
    write: Write,
    reports: Report | Sequence[Report],
    format: options.Format,  # noqa: A002
    layers: options.Layers | None,
    tree: dict[str, Any],
    output: Path | None,
    facts: PageFacts,
) -> None:
    from costmodel.report import render

    width = terminal_width(output)
    look = {"width": width, "color": use_color(width), "unicode": use_unicode(output), **tree}
    write(render(reports, format.value, layers=layers and layers.value, facts=facts, **look))
