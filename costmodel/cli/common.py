"""What several commands do alike."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from costmodel.cli import streams
from costmodel.cli.output import note
from costmodel.errors import CostmodelError, RequestError, own_words

MOST_FRAMES = 4_000
"""Depth of calls while a model's code runs: a capture takes more frames for a module than a plain pass does."""


def choose_hardware(name: str | None, quiet: bool) -> str:
    """The profile's name; refused here, before a model is built, if there is no such profile."""
    from costmodel.hardware import list_profiles, load_profile, resolve_default

    if name is None:
        name, reason = resolve_default()
        note(f"hardware {name} ({reason})", quiet)
    elif name not in list_profiles():
        load_profile(name)
    return name


@contextmanager
def running_user_code(model: str) -> Iterator[None]:
    """Surroundings of whatever calls a model's own code: the process is afterwards as it was.

    That is the directory, the standard streams, and how interrupts and closed pipes are dealt with. A process that the
    code forked, and that comes back from it, ends here, so that there is one result.

    Raises:
        RequestError: the code ended with an exception that would end the process.
    """
    process, directory, depth = os.getpid(), _directory(), sys.getrecursionlimit()
    handlers = {number: signal.getsignal(number) for number in _HANDLED}
    sys.setrecursionlimit(max(depth, MOST_FRAMES))
    try:
        yield
    except (CostmodelError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):
            raise
        raise RequestError(f"{model} raised {own_words(error)}") from error
    finally:
        if os.getpid() != process:
            os._exit(0)
        sys.setrecursionlimit(depth)
        streams.renew()
        if directory is not None:
            with suppress(OSError):
                os.chdir(directory)
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


_HANDLED = (signal.SIGINT, *([signal.SIGPIPE] if hasattr(signal, "SIGPIPE") else []))


def _directory() -> str | None:
    """The process's directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


@contextmanager
def busy(what: str, quiet: bool) -> Iterator[None]:
    """Says on standard error, if that is a terminal, what is being done for more than a moment."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} ..."):
        yield


def terminal_width(output: Path | None) -> int | None:
    """Columns of the terminal that a table goes to; None where it goes to a file or a pipe."""
    return streams.result_columns() if output is None else None
