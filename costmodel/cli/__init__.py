"""The command line: `costmodel predict densenet121`. One file a command; nothing heavy is imported before one runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from costmodel.cli import streams
from costmodel.cli.collect import collect
from costmodel.cli.dataset import export, merge
from costmodel.cli.guard import guarded
from costmodel.cli.hardware import hardware
from costmodel.cli.ir import ir
from costmodel.cli.memory import memory
from costmodel.cli.plan import plan
from costmodel.cli.predict import predict
from costmodel.cli.run import DONE, run
from costmodel.cli.train import train
from costmodel.cli.validate import validate
from costmodel.files import without_temporary_directory


class _Command(TyperCommand):
    """A command whose standard output is kept for its result."""

    def invoke(self, ctx: Any) -> Any:
        streams.set_apart()
        return super().invoke(ctx)


app = typer.Typer(
    name="costmodel",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
dataset = typer.Typer(no_args_is_help=True, help="Export ledgers as datasets; merge datasets.")
app.command("predict", cls=_Command)(predict)
app.command("plan", cls=_Command)(plan)
app.command("validate", cls=_Command)(validate)
app.command("collect", cls=_Command)(collect)
app.add_typer(dataset, name="dataset")
dataset.command("export", cls=_Command)(export)
dataset.command("merge", cls=_Command)(merge)
app.command("hardware", cls=_Command)(hardware)
app.command("train", cls=_Command)(train)
app.command("ir", cls=_Command)(ir)
app.command("memory", cls=_Command)(memory)


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
    """Runs a command line; its exit status.

    0 is done, 1 a missed threshold that the user gave, 2 a wrong request, 130 an interruption.

    Args:
        arguments: None for the process's own, which are then all that the process is for.
    """
    if arguments is None:
        return guarded(lambda: run_only(sys.argv[1:]))
    try:
        return _run(arguments)
    finally:
        streams.put_back()


def run_only(arguments: Sequence[str]) -> int:
    """Runs a command line that is all that the process is for: its standard streams stay apart until it ends."""
    gc.disable()  # a fifth of a prediction's time goes into what torch's import makes, and that stays
    return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    without_temporary_directory()
    # --debug is an option of every command, and looked for here because a command may fail before it is parsed
    return run(lambda: app(list(arguments), prog_name="costmodel", standalone_mode=False), debug="--debug" in arguments)
