"""The command line: `costmodel predict densenet121`. One file a command; nothing heavy is imported before one runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from costmodel.cli.collect import collect
from costmodel.cli.hardware import hardware
from costmodel.cli.ir import ir
from costmodel.cli.memory import memory
from costmodel.cli.plan import plan
from costmodel.cli.predict import predict
from costmodel.cli.run import DONE, run
from costmodel.cli.train import train
from costmodel.cli.validate import validate
from costmodel.files import without_temporary_directory

app = typer.Typer(
    name="costmodel",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("predict")(predict)
app.command("plan")(plan)
app.command("validate")(validate)
app.command("collect")(collect)
app.command("hardware")(hardware)
app.command("train")(train)
app.command("ir")(ir)
app.command("memory")(memory)


def _print_version(wanted: bool) -> None:
    if wanted:
        from costmodel import __version__

        print(f"costmodel {__version__}")
        raise typer.Exit(DONE)


@app.callback()
def common(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its own callback acts on it
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """What torch.compile will do to a vision model on a GPU, told without running it."""
    if context.invoked_subcommand != "predict":
        gc.enable()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line (default: the process's own); its exit status.

    0 is done, 1 a missed threshold that the user gave, 2 a wrong request, 130 an interruption.
    """
    if arguments is None:
        gc.disable()  # a fifth of a prediction's time goes into what torch's import makes, and that stays
    without_temporary_directory()
    # --debug is an option of every command, and looked for here because a command may fail before it is parsed
    given = list(sys.argv[1:] if arguments is None else arguments)
    return run(lambda: app(given, prog_name="costmodel", standalone_mode=False), debug="--debug" in given)
