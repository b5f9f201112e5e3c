"""Errors of a command -> one line on standard error and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from costmodel.cli import streams
from costmodel.cli.output import abandon_stdout
from costmodel.errors import CostmodelError, own_words
from costmodel.report.escape import terminal

DONE = 0
MISSED = 1
"""A threshold that the user gave was missed."""
WRONG_REQUEST = 2
INTERRUPTED = 130


def run(command: Callable[[], Any], debug: bool = False) -> int:
    """Call `command`, and turn its result or error into an exit status.

    Args:
        command: function that returns None or an exit status.
        debug: whether the traceback of an error precedes its line.
    """
    try:
        status = command()
        flush()
        return status if isinstance(status, int) else DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # raised by the help; results handle it where they are written
        abandon_stdout()
        return DONE
    except SystemExit:  # raised by typer when the reader of its help has gone
        return DONE
    except BaseException as error:  # noqa: BLE001 - the last place where anything can be caught
        if debug:
            print_traceback()
        if message := message_of(error):
            complain(message)
        return WRONG_REQUEST


def complain(message: str) -> None:
    """Write an error's line to standard error, with the program's name."""
    streams.say(f"costmodel: error: {message}")


def print_traceback() -> None:
    """Write the traceback of the error being handled to standard error; nothing if the error itself prevents it."""
    import traceback

    with suppress(Exception):
        for line in traceback.format_exc().splitlines():
            print(terminal(line), file=sys.stderr)


def flush() -> None:
    """Flush standard output, so that a failure is seen here."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def message_of(error: BaseException) -> str:
    """Message of an error for the user; an error that was not raised on purpose is reported as a bug."""
    if isinstance(error, CostmodelError):
        return str(error)
    usage = getattr(error, "format_message", None)  # the message of typer's errors, in all its releases
    if callable(usage):
        # Without the words of pydantic, which typer uses; empty after a bare command, for which the help is printed.
        text = usage().replace("Value error, ", "")
        return f"{text} (see {_command_path(error)} --help)" if text else ""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"this is a bug in costmodel: {own_words(error)} (--debug shows where)"


def _command_path(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    return getattr(context, "command_path", None) or "costmodel"
