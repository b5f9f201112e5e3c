"""`costmodel plan MODEL`: the oracle's choice, region by region; nothing runs."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli import options
from costmodel.cli.output import busy, choose_hardware, note, opened, running_user_code, terminal_width
from costmodel.errors import RequestError


class StrategyName(StrEnum):
    """Oracles that decide; all but the first are the study's, to compare with."""

    EXACT = "exact"
    THEORETICAL = "theoretical"
    BEST_OF_TWO = "best-of-two"
    PUBLISHED = "published"


StrategyOption = Annotated[StrategyName, typer.Option("--strategy", help="The oracle that decides.")]
CallsOption = Annotated[
    int | None,
    typer.Option(
        "--calls", metavar="N", help="Least total time of so many calls, compiling included; else least latency."
    ),
]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit", metavar="SIZE", help="Least latency within so much memory, weights included: 512M, 2G."
    ),
]
PlanOutput = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="PLAN.json", help="Save the plan to a file.")
]


def plan(
    model: options.Model,
    hardware: options.Hardware = None,
    batch_size: options.BatchSize = None,
    img_size: options.ImgSize = None,
    precision: options.PrecisionOption = options.Precision.FLOAT32,
    channels_last: options.ChannelsLast = False,
    strategy: StrategyOption = StrategyName.EXACT,
    calls: CallsOption = None,
    memory_limit: MemoryLimitOption = None,
    format: options.FormatOption = options.Format.TABLE,  # noqa: A002 - the name of the option
    output: PlanOutput = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Plan how MODEL should run: each region eager, by Inductor or by cuDNN, all in one CUDA graph. Runs nothing."""
    limit = math.inf if memory_limit is None else parse_size(memory_limit)
    profile = choose_hardware(hardware, quiet)
    from costmodel.planning.api import plan as make_plan
    from costmodel.planning.plan_report import render_plan
    from costmodel.zoo import load

    with opened(output) as save, opened(None) as write:
        with running_user_code(model):
            loaded = load(
                model, batch_size=batch_size, img_size=img_size, precision=precision.value, channels_last=channels_last
            )
            with busy(f"planning {model}", quiet):
                made = make_plan(
                    loaded.module,
                    loaded.inputs,
                    hardware=profile,
                    model_name=loaded.name,
                    strategy=strategy.value,
                    calls=math.inf if calls is None else calls,
                    memory_limit=limit,
                )
        if output is not None:
            save(made.to_json())
        write(render_plan(made, format.value, terminal_width(None)))
    if output is not None:
        note(f"plan: {output}", quiet)


def parse_size(text: str) -> int:
    """Bytes of a size: a number and K, M or G, which are 2^10, 2^20 and 2^30 bytes.

    Raises:
        RequestError: it is none.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([KMG])", text.strip().upper())
    size = int(float(match[1]) * 2 ** {"K": 10, "M": 20, "G": 30}[match[2]]) if match else 0
    if size <= 0:
        raise RequestError(f"impossible memory limit {text!r}; give a number above 0 and K, M or G, such as 512M")
    return size
