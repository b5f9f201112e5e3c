"""Where results go: standard output, or a file that appears whole or not at all."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from costmodel.errors import RequestError
from costmodel.files import reserve, take_name
from costmodel.report.escape import terminal

Write = Callable[[str], None]


@contextmanager
def opened(path: Path | None) -> Iterator[Write]:
    """A function that takes the result's text, whole, once.

    A file's text goes to a temporary name in the same directory, opened at once so that a path that cannot be written
    is refused before any work is done; it takes its own name when the block ends well.

    Args:
        path: None for standard output.

    Raises:
        RequestError: the path cannot be written.
    """
    if path is None:
        yield _to_stdout
    elif path.exists() and not path.is_file():
        yield _special(path)
    else:
        with _replacing(path) as write:
            yield write


def note(text: str, quiet: bool) -> None:
    """A line on standard error, unless the user wants quiet."""
    if not quiet:
        print(f"costmodel: {terminal(text)}", file=sys.stderr)


def print_traceback() -> None:
    """The traceback of the error that is handled, on standard error, with nothing that a terminal acts on."""
    for line in traceback.format_exc().splitlines():
        print(terminal(line), file=sys.stderr)


def abandon_stdout() -> None:
    """The reader has gone: nothing more is written, and the interpreter's last flush must not complain."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _to_stdout(text: str) -> None:
    if sys.stdout is None:
        raise RequestError("standard output is closed; give -o FILE")
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
    except OSError as error:
        raise RequestError(f"cannot write to standard output: {error.strerror}") from error


def _special(path: Path) -> Write:
    """A pipe or a device is written to directly: it cannot be replaced."""
    if path.is_dir():
        raise RequestError(f"cannot write {path}: it is a directory")

    def write(text: str) -> None:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RequestError(f"cannot write {path}: {error.strerror}") from error

    return write


@contextmanager
def _replacing(path: Path) -> Iterator[Write]:
    try:
        temporary = reserve(path)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}") from error
    written: list[str] = []
    try:
        yield written.append
        if written:
            _commit(temporary, path, "".join(written))
    finally:
        temporary.unlink(missing_ok=True)


def _commit(temporary: Path, path: Path, text: str) -> None:
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        take_name(temporary, path)
    except OSError as error:
        raise RequestError(f"cannot write {path}: {error.strerror}") from error
