"""`costmodel plan MODEL`: the oracle's choice, region by region; nothing runs."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from costmodel.cli import options
from costmodel.cli.common import busy, choose_hardware, terminal_width
from costmodel.cli.output import note, opened


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
    format: options.FormatOption = options.Format.TABLE,  # noqa: A002 - the name of the option
    output: PlanOutput = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Plan how MODEL should run: each region eager, by Inductor or by cuDNN, all in one CUDA graph. Runs nothing."""
    profile = choose_hardware(hardware, quiet)
    from costmodel.planning import plan as make_plan
    from costmodel.report.plans import render_plan
    from costmodel.zoo import load

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
        )
    if output is not None:
        made.save(output)
        note(f"plan: {output}", quiet)
    with opened(None) as write:
        write(render_plan(made, format.value, terminal_width(None)))
