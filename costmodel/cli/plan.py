"""`costmodel plan MODEL`: the oracle's choice of backends, region by region; nothing runs."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from costmodel.cli import options
from costmodel.cli.output import choose_hardware, note, note_releases, opened, render_result, running_user_code
from costmodel.cli.torch_options import arithmetic_of
from costmodel.errors import RequestError
from costmodel.report.progress import busy


class StrategyName(StrEnum):
    """Oracles that choose the backends; all but the first are there for comparison."""

    EXACT = "exact"
    THEORETICAL = "theoretical"
    BEST_OF_TWO = "best-of-two"
    PUBLISHED = "published"


StrategyOption = Annotated[
    StrategyName, typer.Option("--strategy", help="Oracle that chooses; all but exact are for comparison.")
]
CallsOption = Annotated[
    int | None,
    typer.Option(
        "--calls", metavar="N", help="Minimise the total time of N calls and their compilation; default: the latency."
    ),
]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="Minimise latency within this memory, weights included: 512M or 2G, in MiB and GiB.",
    ),
]
PlanOutput = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Save the plan to FILE and print the table; with --format, write the result to FILE in that form.",
    ),
]
PlanFormat = Annotated[
    options.Format | None, typer.Option("--format", help="Form of the result; default: table. JSON is the plan itself.")
]


def plan(
    model: options.Model,
    hardware: options.Hardware = None,
    batch_size: options.BatchSize = None,
    img_size: options.ImgSize = None,
    precision: options.PrecisionOption = None,
    channels_last: options.ChannelsLast = False,
    amp: options.AmpOption = None,
    matmul_precision: options.MatmulPrecisionOption = options.MatmulPrecision.HIGHEST,
    cudnn_benchmark: options.CudnnBenchmark = False,
    strategy: StrategyOption = StrategyName.EXACT,
    calls: CallsOption = None,
    memory_limit: MemoryLimitOption = None,
    check: options.Check = True,
    format: PlanFormat = None,  # noqa: A002 - the name of the option
    output: PlanOutput = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Plan how MODEL should run: each region by ATen, Inductor or cuDNN, all in one CUDA graph. Runs nothing."""
    limit = math.inf if memory_limit is None else parse_size(memory_limit)
    profile = choose_hardware(hardware, quiet)
    settings = arithmetic_of(amp, matmul_precision, cudnn_benchmark, precision=precision, profiles=[profile])
    from costmodel.cli.checking import checking
    from costmodel.planning.api import plan as make_plan
    from costmodel.planning.plan_report import plan_document
    from costmodel.zoo import load

    shown_at = None if format is None else output  # without --format FILE takes the plan, and the table is printed
    with opened(output) as save, opened(None) as write:
        with running_user_code(model):
            request: dict[str, Any] = {"batch_size": batch_size, "img_size": img_size}
            request |= {"precision": precision and precision.value, "channels_last": channels_last}
            loaded = load(model, **request)
            with busy(f"planning {model}", quiet=quiet):
                made = make_plan(
                    loaded.module,
                    loaded.inputs,
                    hardware=profile,
                    model_name=loaded.name,
                    strategy=strategy.value,
                    calls=math.inf if calls is None else calls,
                    memory_limit=limit,
                    **asdict(settings),
                    **checking(model, request, check=check, quiet=quiet),
                )
        made = replace(made, warnings=(*loaded.warnings, *made.warnings))
        text = render_result(plan_document(made), format or options.Format.TABLE, shown_at)
        if output is not None:
            save(text if shown_at is not None else made.to_json())
        if shown_at is None:
            write(text)
    if output is not None:
        note(f"plan: {output}", quiet)
    note_releases((profile,), quiet)


def parse_size(text: str) -> int:
    """Bytes of a size: a number with K, M or G for KiB, MiB or GiB.

    Raises:
        RequestError: the text is not a size.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([KMG])", text.strip().upper())
    size = int(float(match[1]) * 2 ** {"K": 10, "M": 20, "G": 30}[match[2]]) if match else 0
    if size <= 0:
        raise RequestError(f"impossible memory limit {text!r}; give a number above 0 and K, M or G, such as 512M")
    return size
