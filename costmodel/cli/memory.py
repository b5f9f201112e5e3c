"""`costmodel memory MODEL`: peak memory of inference and training, and methods to lower it; nothing runs."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from costmodel.cli import options
from costmodel.cli.output import choose_hardware, note, opened, render_result, running_user_code
from costmodel.cli.torch_options import arithmetic_of
from costmodel.errors import RequestError
from costmodel.report.progress import busy


class OptimizerName(StrEnum):
    """Optimizers whose state is counted."""

    NONE = "none"
    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"
    ADAMW = "adamw"


OptimizerOption = Annotated[
    OptimizerName, typer.Option("--optimizer", help="Optimizer whose state a training step holds.")
]
Pass = Annotated[
    bool | None, typer.Option("--training/--inference", help="Only a training step, or only inference; default: both.")
]
Compiled = Annotated[
    bool, typer.Option("--compiled", help="Also the peak of the compiled training step, which takes some seconds.")
]
SavePlan = Annotated[
    Path | None, typer.Option("--save-plan", metavar="FILE", help="Write the checkpointing plan to FILE.")
]


def memory(
    model: options.Model,
    hardware: options.Hardware = None,
    batch_size: options.BatchSize = None,
    img_size: options.ImgSize = None,
    precision: options.PrecisionOption = None,
    channels_last: options.ChannelsLast = False,
    amp: options.AmpOption = None,
    training: Pass = None,
    optimizer: OptimizerOption = OptimizerName.NONE,
    compiled: Compiled = False,
    save_plan: SavePlan = None,
    check: options.Check = True,
    format: options.FormatOption = None,  # noqa: A002 - the name of the option
    output: options.Output = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Predict MODEL's peak memory in inference and training, and what saving fewer activations gains. Runs nothing."""
    if save_plan is not None and training is False:
        raise RequestError("a checkpointing plan needs the training step; leave out --inference or --save-plan")
    if save_plan is not None and output is not None and save_plan.resolve() == output.resolve():
        raise RequestError(f"both the report and the plan would go to {output}; give two files")
    with opened(output) as write, opened(save_plan) as save:
        from costmodel.cli.checking import checking
        from costmodel.memory.analysis import analyze_memory
        from costmodel.memory.checkpoint_plan import make_plan
        from costmodel.memory.report import memory_document
        from costmodel.zoo import load

        hardware = choose_hardware(hardware, quiet)
        arithmetic_of(amp, options.MatmulPrecision.HIGHEST, False, precision=precision, profiles=[hardware])
        with running_user_code(model):
            request: dict[str, Any] = {"batch_size": batch_size, "img_size": img_size}
            request |= {"precision": precision and precision.value, "channels_last": channels_last}
            loaded = load(model, **request)
            with busy(f"analysing {model}", quiet=quiet):
                report = analyze_memory(
                    loaded.module,
                    loaded.inputs,
                    hardware=hardware,
                    model_name=loaded.name,
                    optimizer=optimizer.value,
                    passes=_PASSES[training],
                    compiled=compiled and training is not False,
                    amp=amp and amp.value,
                    **checking(model, request, check=check, quiet=quiet),
                )
        if training is not True:  # a training step needs no evaluation mode
            report = replace(report, warnings=(*loaded.warnings, *report.warnings))
        if save_plan is not None and report.training is not None:
            save(make_plan(report.model, report.training.checkpointing).to_json())
        write(render_result(memory_document(report), format, output))
    if save_plan is not None:
        note(f"checkpointing plan: {save_plan}", quiet)


_PASSES = {None: ("inference", "training"), True: ("training",), False: ("inference",)}
"""Passes by the value of `--training/--inference`."""
