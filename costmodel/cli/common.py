"""What several commands do alike."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.cli import streams
from costmodel.cli.output import note
from costmodel.errors import CostmodelError, RequestError, own_words
from costmodel.report.escape import terminal

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

    A process that the code forked, and that comes back from it, ends here, so that there is one result.

    Raises:
        RequestError: the code ended with an exception that would end the process.
    """
    process, before = os.getpid(), _Surroundings.now()
    sys.setrecursionlimit(max(before.depth, MOST_FRAMES))
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
        before.restore()


_HANDLED = (signal.SIGINT, *([signal.SIGPIPE] if hasattr(signal, "SIGPIPE") else []))
"""Signals that a command deals with in its own way: interrupts, closed pipes."""


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """State of the process that a model's code may change; beside it, the standard streams.

    Attributes:
        directory: where relative paths start; None if it was removed.
        depth: of calls, at most.
        handlers: of the signals that a command deals with; None for one that is not Python's.
    """

    directory: str | None
    depth: int
    handlers: tuple[Any, ...]

    @classmethod
    def now(cls) -> _Surroundings:
        """The state as it is."""
        directory = None
        with suppress(OSError):
            directory = os.getcwd()
        return cls(directory, sys.getrecursionlimit(), tuple(map(signal.getsignal, _HANDLED)))

    def restore(self) -> None:
        """Makes the state what it was; signals only in the main thread, which alone may."""
        sys.setrecursionlimit(self.depth)
        streams.renew()
        if self.directory is not None:
            with suppress(OSError):
                os.chdir(self.directory)
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in zip(_HANDLED, self.handlers, strict=True):
            if handler is not None:
                signal.signal(number, handler)


@contextmanager
def busy(what: str, quiet: bool) -> Iterator[None]:
    """Says on standard error, if that is a terminal, what is being done for more than a moment."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"{terminal(what)} ...")):
        yield


def terminal_width(output: Path | None) -> int | None:
    """Columns of the terminal that a table goes to; None where it goes to a file or a pipe."""
    return streams.result_columns() if output is None else None
