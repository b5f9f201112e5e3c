"""From what a command raises to one line on standard error and an exit status."""

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
    """Calls `command` and turns its end, whatever it is, into an exit status.

    Args:
        command: returns None or an exit status.
        debug: print the traceback of an error before its line.
    """
    try:
        status = command()
        flush()
        return status if isinstance(status, int) else DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # of the help; the reader of a result is dealt with where it is written
        abandon_stdout()
        return DONE
    except SystemExit:  # how typer ends when the reader of its help has gone
        return DONE
    except BaseException as error:  # noqa: BLE001 - the last place where anything can be caught
        if debug:
            print_traceback()
        if message := message_of(error):
            complain(message)
        return WRONG_REQUEST


def complain(message: str) -> None:
    """One line on standard error, under the program's name."""
    streams.say(f"costmodel: error: {message}")


def print_traceback() -> None:
    """The traceback of the error being handled, on standard error; none if the error itself prevents it."""
    import traceback

    with suppress(Exception):
        for line in traceback.format_exc().splitlines():
            print(terminal(line), file=sys.stderr)


def flush() -> None:
    """Writes out what standard output still holds, so that a failure to do so is seen here."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def message_of(error: BaseException) -> str:
    """What an error says to a user; of one that nobody raised on purpose, that it is a bug."""
    if isinstance(error, CostmodelError):
        return str(error)
    usage = getattr(error, "format_message", None)  # how typer's errors, of whatever release, say what was wrong
    if callable(usage):
        said = usage()  # empty where the error is that nothing was asked, and the help is already printed
        return f"{said} (see {_command_path(error)} --help)" if said else ""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"this is a bug in costmodel: {own_words(error)} (--debug shows where)"


def _command_path(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    return getattr(context, "command_path", None) or "costmodel"
