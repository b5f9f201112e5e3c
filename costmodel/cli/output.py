"""Where results go: standard output, or a file that appears whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from costmodel.cli import streams
from costmodel.errors import RequestError
from costmodel.files import check_writable, write_whole

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
