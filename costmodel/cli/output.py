"""Where results go: standard output, or a file that appears whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.cli import streams
from costmodel.errors import CostmodelError, RequestError, own_words
from costmodel.files import check_writable, write_whole
from costmodel.report.escape import terminal

MOST_FRAMES = 4_000
"""Depth of calls while a model's code runs: a capture takes more frames for a module than a plain pass does."""
_HANDLED = (signal.SIGINT, *([signal.SIGPIPE] if hasattr(signal, "SIGPIPE") else []))
"""Signals that a command deals with in its own way: interrupts, closed pipes."""

Write = Callable[[str], None]
_STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


@contextmanager
def opened(path: Path | None) -> Iterator[Write]:
    """A function that takes the result's text, whole, once.

    A path means the directory of now, though that of the process may change within the block. One that cannot be
    written is refused at once, before any work is done; the file appears when the block ends well.

    Args:
        path: None for standard output.

    Raises:
        RequestError: the path cannot be written.
    """
    if path is None or str(path.absolute()) in _STDOUT:
        yield _to_stdout
    elif path.exists() and not path.is_file():
        yield _special(path.absolute(), path)
    else:
        with _replacing(path) as write:
            yield write


def note(text: str, quiet: bool) -> None:
    """A line on standard error, unless the user wants quiet."""
    if not quiet:
        streams.say(f"costmodel: {text}")


def abandon_stdout() -> None:
    """The reader has gone: nothing more is written, and the interpreter's last flush must not complain."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _to_stdout(text: str) -> None:
    try:
        streams.write_result(text)
    except BrokenPipeError:
        return  # the reader has what it wanted
    except OSError as error:
        if error.errno == errno.EBADF:
            raise RequestError("standard output is closed; give -o FILE") from error
        raise RequestError(f"cannot write to standard output: {error.strerror}") from error


def _special(path: Path, given: Path) -> Write:
    """A pipe or a device is written to directly: it cannot be replaced."""
    if path.is_dir():
        raise RequestError(f"cannot write {given}: it is a directory")

    def write(text: str) -> None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RequestError(f"cannot write {given}: {error.strerror}") from error

    return write


@contextmanager
def _replacing(path: Path) -> Iterator[Write]:
    written: list[str] = []
    with _refusing(path):
        check_writable(path)
        target = path.absolute()
    yield written.append
    if written:
        with _refusing(path):
            write_whole(target, "".join(written).encode("utf-8", "backslashreplace"))


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}") from error


def choose_hardware(name: str | None, quiet: bool) -> str:
    """The profile's name; refused here, before a model is built, if there is no such profile."""
    from costmodel.profiles.profile import list_profiles, load_profile, resolve_default

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
