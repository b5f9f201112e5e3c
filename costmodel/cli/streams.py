"""Standard streams of a command, isolated from what a model's code does to the process's streams.

While a command runs, descriptor 1 refers to standard error: for Python, C code, threads, child processes and exit
handlers. The result is written to a copy of the original descriptor. No child process inherits the copy, and only the
process that began the command writes to it.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from costmodel.report.escape import terminal

_USUAL_COLUMNS = 80


class _Copy:
    """Copy of a descriptor, used only while it refers to the same file: other code may close it and open another."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._file = os.fstat(self._descriptor)

    def checked(self) -> int:
        """The descriptor.

        Raises:
            OSError: it is closed, or refers to another file.
        """
        if not os.path.samestat(os.fstat(self._descriptor), self._file):
            raise _closed()
        return self._descriptor

    def close(self) -> None:
        with suppress(OSError):
            os.close(self.checked())


class Kept:
    """Standard stream at the start of the command, independent of `sys.stdout` and of its descriptor.

    A stream without a descriptor, as in a notebook or a test, is kept as an object.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._process = os.getpid()
        self._copy: _Copy | None = None
        if stream is not None:
            with suppress(AttributeError, OSError, ValueError):
                self._copy = _Copy(stream.fileno())

    @property
    def encoding(self) -> str:
        """Encoding of the stream."""
        return self._encoding

    def write(self, text: str) -> None:
        """Write a whole text; a process forked during the command writes nothing.

        Raises:
            OSError: the text cannot be written; EBADF if the stream is closed.
        """
        if os.getpid() != self._process:
            return
        if self._stream is None:
            raise _closed()
        data = text.encode(self._encoding, "backslashreplace")
        if self._copy is None:
            self._stream.write(data.decode(self._encoding))
            self._stream.flush()
        else:
            _write_all(self._copy.checked(), data)

    def columns(self) -> int | None:
        """Width of the terminal that the stream refers to; None for a file or a pipe."""
        with suppress(OSError):
            return self._terminal_columns()
        return None

    def _terminal_columns(self) -> int | None:
        if self._copy is None or not os.isatty(self._copy.checked()):
            return None
        given = os.environ.get("COLUMNS", "")
        if re.fullmatch(r"[1-9]\d{0,5}", given):
            return int(given)
        return os.get_terminal_size(self._copy.checked()).columns or _USUAL_COLUMNS

    def close(self) -> None:
        """Close the copy of the descriptor; nothing can be written afterwards."""
        if self._copy is not None:
            self._copy.close()
        self._copy = self._stream = None


@dataclass(frozen=True, slots=True)
class _Process:
    """Streams of this process before the command.

    Attributes:
        out: stream of the result.
        err: stream of the messages.
        objects: `sys.stdout` and `sys.stderr`.
        descriptors: copies of descriptors 1 and 2.
    """

    out: Kept
    err: Kept
    objects: tuple[TextIO | None, TextIO | None]
    descriptors: tuple[_Copy, _Copy]


_kept: _Process | None = None


def set_apart() -> None:
    """Keep the streams for the command, and give the process other ones."""
    global _kept  # noqa: PLW0603 - a process has one standard output
    if _kept is not None:
        return
    _open_closed_descriptors()
    _kept = _Process(Kept(sys.stdout), Kept(sys.stderr), (sys.stdout, sys.stderr), (_Copy(1), _Copy(2)))
    renew()


def renew() -> None:
    """Give the process working streams, all to standard error, after code that may have closed or replaced them."""
    if _kept is None:
        return
    with suppress(OSError):  # the copies may be closed, too
        for descriptor in (1, 2):
            os.dup2(_kept.descriptors[1].checked(), descriptor)
    _open_closed_descriptors()
    before = _kept.objects[1]
    sys.stderr = _stream(2) if before is None or before.closed else before
    sys.stdout = _stream(1) if _has_descriptor(sys.stderr) else sys.stderr


def put_back() -> None:
    """Restore the process's own streams, for a program that goes on after the command."""
    global _kept
    if _kept is None:
        return
    kept, _kept = _kept, None
    sys.stdout, sys.stderr = kept.objects
    with suppress(OSError):
        for copy, descriptor in zip(kept.descriptors, (1, 2), strict=True):
            os.dup2(copy.checked(), descriptor)
            copy.close()
    kept.out.close()
    kept.err.close()


def write_result(text: str) -> None:
    """Write to the command's standard output.

    Raises:
        OSError: the text cannot be written.
    """
    (_kept.out if _kept else Kept(sys.stdout)).write(text)


def result_columns() -> int | None:
    """Width of the terminal of the command's standard output; None for a file or a pipe."""
    return (_kept.out if _kept else Kept(sys.stdout)).columns()


def result_encoding() -> str:
    """Encoding of the command's standard output."""
    return (_kept.out if _kept else Kept(sys.stdout)).encoding


def say(text: str) -> None:
    """Write one line to the command's standard error, if it is still open; control characters are escaped."""
    line = terminal(" ".join(text.split())) + "\n"
    if _kept is None:
        with suppress(OSError, ValueError):
            print(line, end="", file=sys.stderr)
        return
    try:
        _kept.err.write(line)
    except (OSError, ValueError):  # closed by other code
        with suppress(OSError):
            os.write(2, line.encode("utf-8", "backslashreplace"))


def _open_closed_descriptors() -> None:
    """Open closed standard descriptors, so that no file opened later becomes a standard stream."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor


def _stream(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _has_descriptor(stream: TextIO) -> bool:
    try:
        return stream.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False


def _write_all(descriptor: int, data: bytes) -> None:
    os.set_blocking(descriptor, True)  # shared with other processes, any of which may have changed it
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _closed() -> OSError:
    return OSError(errno.EBADF, os.strerror(errno.EBADF))


def _close_in_child() -> None:
    """Close the result's descriptor in a forked process, for whose end the reader would otherwise wait."""
    if _kept is not None:
        _kept.out.close()
        _kept.descriptors[0].close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
