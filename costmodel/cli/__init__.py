"""Command line: `costmodel predict densenet121`. One file a command; heavy imports wait until a command runs."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from costmodel.cli import streams
from costmodel.cli.collect import collect
from costmodel.cli.compare import compare
from costmodel.cli.dataset import export, merge, transfer
from costmodel.cli.examples import epilog
from costmodel.cli.guard import guarded
from costmodel.cli.hardware import hardware
from costmodel.cli.ir import ir
from costmodel.cli.memory import memory
from costmodel.cli.plan import plan
from costmodel.cli.predict import predict
from costmodel.cli.run import DONE, run
from costmodel.cli.train import train
from costmodel.cli.validate import validate
from costmodel.errors import RequestError
from costmodel.files import without_temporary_directory

COMPLETION = "_COSTMODEL_COMPLETE"
"""Environment variable by which a shell asks for completions."""


def _takes_one_value(option: Any) -> bool:
    """Whether of several values of an option only the last would count; a repeated flag changes nothing."""
    is_list = option.multiple or option.nargs != 1
    is_repeatable_flag = option.is_flag and not option.secondary_opts
    return option.param_type_name == "option" and not is_list and not is_repeatable_flag


class _Command(TyperCommand):
    """Command whose standard output is reserved for its result, and whose single-valued options may be given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command's arguments.

        Raises:
            RequestError: an option that takes one value is given twice, so that one value would be dropped.
        """
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option in given:
            if given.count(option) > 1 and _takes_one_value(option):
                raise RequestError(f"{max(option.opts, key=len)} is given {given.count(option)} times; give it once")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        streams.set_apart()
        return super().invoke(ctx)


app = typer.Typer(
    name="costmodel",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="costmodel COMMAND --help ends with examples. A first one: costmodel predict densenet121",
)
dataset = typer.Typer(
    no_args_is_help=True, help="Export ledgers as datasets; merge datasets; transfer them to a similar device."
)
_COMMANDS: tuple[Callable[..., None], ...] = (predict, compare, plan, validate, memory, ir, hardware, collect, train)
"""Commands in the order of the help: from a first prediction to a profile of one's own."""
for _command in _COMMANDS:
    app.command(_command.__name__, cls=_Command, epilog=epilog(_command.__name__))(_command)
app.add_typer(dataset, name="dataset")
_PARTS: tuple[Callable[..., None], ...] = (export, merge, transfer)
for _part in _PARTS:
    dataset.command(_part.__name__, cls=_Command, epilog=epilog(f"dataset {_part.__name__}"))(_part)


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
    """Predict what torch.compile does to a vision model on a GPU, without running the model."""
    if context.invoked_subcommand not in ("predict", "plan"):
        gc.enable()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit status: 0 done, 1 a threshold missed, 2 a wrong request, 130 interrupted.

    Args:
        arguments: None for the arguments of the process, which then serves this command only.
    """
    if COMPLETION in os.environ:
        app(prog_name="costmodel")  # ends the process with the status that the shell expects
    if arguments is None:
        return guarded(lambda: run_only(sys.argv[1:]))
    try:
        return _run(arguments)
    finally:
        streams.put_back()


def run_only(arguments: Sequence[str]) -> int:
    """Run a command line in a process that serves nothing else: its standard streams stay isolated until it ends."""
    gc.disable()  # saves a fifth of a prediction's or plan's time: objects that importing torch makes live to the end
    return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    without_temporary_directory()
    # every command has --debug; it is looked for here, because a command may fail before its options are parsed
    words = list(arguments)
    return run(lambda: app(words, prog_name="costmodel", standalone_mode=False, obj=words), debug="--debug" in words)
