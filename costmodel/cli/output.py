"""Targets of results: standard output, or a file that appears whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costmodel.cli import streams
from costmodel.cli.options import Format
from costmodel.errors import CostmodelError, RequestError, own_words
from costmodel.files import check_writable, write_whole

if TYPE_CHECKING:
    from costmodel.report.document import Document

MOST_FRAMES = 4_000
"""Recursion limit while a model's code runs: capturing a module takes more frames than calling it."""
_HANDLED = (signal.SIGINT, *([signal.SIGPIPE] if hasattr(signal, "SIGPIPE") else []))
"""Signals that a command handles itself: interrupts, closed pipes."""

Write = Callable[[str], None]
_STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


@contextmanager
def opened(path: Path | None) -> Iterator[Write]:
    """Provide a function that writes the whole text of the result, once.

    A relative path is resolved at once, because a model's code may change the working directory. A path that cannot be
    written is refused before any work is done. The file appears when the block ends without an error.

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
    """Write a line to standard error, unless the user asked for quiet."""
    if not quiet:
        streams.say(f"costmodel: {text}")


def abandon_stdout() -> None:
    """Discard all further output after the reader has gone, so that the interpreter's last flush cannot fail."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _to_stdout(text: str) -> None:
    try:
        streams.write_result(text)
    except BrokenPipeError:
        return  # the reader needs no more
    except OSError as error:
        if error.errno == errno.EBADF:
            raise RequestError("standard output is closed; give -o FILE") from error
        raise RequestError(f"cannot write to standard output: {error.strerror}") from error


def _special(path: Path, given: Path) -> Write:
    """Write to a pipe or a device directly, since neither can be replaced."""
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
    """Name of the profile to predict for.

    Raises:
        UnknownHardwareError: there is no such profile; raised before a model is built.
    """
    from costmodel.profiles.profile import resolve_default

    if name is None:
        name, reason = resolve_default()
        note(f"hardware {name} ({reason})", quiet)
    return name


def note_releases(profiles: Iterable[str], quiet: bool) -> None:
    """Note profiles that were measured with another release of torch than the installed one, after a prediction."""
    from costmodel.profiles.profile import load_profile, release_note

    for line in filter(None, (release_note(load_profile(name)) for name in profiles)):
        note(line, quiet)


@contextmanager
def running_user_code(model: str) -> Iterator[None]:
    """Restore the process after a model's own code has run in the block.

    A process that the code forked ends at the end of the block, so that there is one result.

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
    """State of the process that a model's code may change, apart from the standard streams.

    Attributes:
        directory: the working directory; None if it was removed.
        depth: the recursion limit.
        handlers: handlers of the signals that a command handles itself; None for a handler that is not Python's.
        defaults: torch's default dtype and device; None for no device.
    """

    directory: str | None
    depth: int
    handlers: tuple[Any, ...]
    defaults: tuple[Any, Any]

    @classmethod
    def now(cls) -> _Surroundings:
        """The current state."""
        directory = None
        with suppress(OSError):
            directory = os.getcwd()
        return cls(directory, sys.getrecursionlimit(), tuple(map(signal.getsignal, _HANDLED)), _torch_defaults())

    def restore(self) -> None:
        """Restore the state; signal handlers only in the main thread, as Python requires."""
        sys.setrecursionlimit(self.depth)
        streams.renew()
        _set_torch_defaults(*self.defaults)
        if self.directory is not None:
            with suppress(OSError):
                os.chdir(self.directory)
        if threading.current_thread() is not threading.main_thread():
            return
        for number, handler in zip(_HANDLED, self.handlers, strict=True):
            if handler is not None:
                signal.signal(number, handler)


def _torch_defaults() -> tuple[Any, Any]:
    """Default dtype and device of torch; the device is None unless one was set."""
    import torch
    from torch.utils import _device

    return torch.get_default_dtype(), _device.CURRENT_DEVICE


def _set_torch_defaults(dtype: Any, device: Any) -> None:
    """Set torch's defaults back, so that the next model is not built with those of the last."""
    import torch

    now = _torch_defaults()
    if now[0] != dtype:
        torch.set_default_dtype(dtype)
    if now[1] != device:
        torch.set_default_device(device)


def terminal_width(output: Path | None) -> int | None:
    """Columns of the terminal that a table is written to; None for a file or a pipe."""
    return streams.result_columns() if output is None else None


def use_color(width: int | None) -> bool:
    """Whether a table may use terminal colours: only on a terminal, and not under NO_COLOR."""
    return width is not None and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def use_unicode(output: Path | None) -> bool:
    """Whether bars and branches may be drawn in Unicode: in a file, and where standard output is in UTF-8."""
    return output is not None or streams.result_encoding().lower().replace("-", "") == "utf8"


def form_of(format: Format | None, output: Path | None) -> Format:  # noqa: A002 - the name of the option
    """Form of a result: the wanted one, else the one that the file's suffix names, else a table."""
    named = output.suffix.removeprefix(".").lower() if output is not None else ""
    return format or (Format(named) if named in set(Format) else Format.TABLE)


def render_result(document: Document, format: Format | None, output: Path | None) -> str:  # noqa: A002
    """Render a command's result for the place that it is written to."""
    from costmodel.report.renderers import render_document

    width = terminal_width(output)
    return render_document(document, form_of(format, output), width, color=use_color(width))
