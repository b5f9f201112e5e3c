"""Reading of untrusted files as checked data: regular files only, JSON of a declared type, one-line errors.

A file format is declared as a `msgspec.Struct` with bounds in its annotations, and a `Format` reads it. JSON is parsed
by Python's own module, as msgspec's parser accepts duplicate keys, and refuses the NaN of a ledger's error.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Generic, NoReturn, TypeVar

import msgspec
from msgspec import Meta

from costmodel.errors import CostmodelError

MOST_BYTES = 64 << 20
"""Default largest size of a file that is read."""
MOST_DIGITS = 18
"""Most digits of an integer, so that it fits in 64 bits."""
LONGEST_MESSAGE = 200
"""Most characters of a quoted text."""

Count = Annotated[int, Meta(ge=0, le=10**MOST_DIGITS)]
"""Number of things or bytes."""
Time = Annotated[float, Meta(ge=0, le=1e15)]
"""Time in microseconds, milliseconds or seconds: at most thirty years of microseconds."""
Duration = Annotated[float, Meta(ge=1e-6, le=1e15)]
"""Positive time in microseconds: at least a picosecond, so that it can be a divisor."""
Text = Annotated[str, Meta(max_length=10_000)]
"""Name or sentence."""

Scalar = bool | int | float | str | None
_Flat = Scalar | list[Scalar] | dict[str, Scalar]
_Nested = Scalar | list[_Flat] | dict[str, _Flat]
_Deeper = Scalar | list[_Nested] | dict[str, _Nested]
Shallow = Scalar | list[_Deeper] | dict[str, _Deeper]
"""JSON that is only shown, with nesting limited so that code may recurse through it."""

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Format(Generic[Record]):
    """Format of a JSON file, and the errors of its reader.

    Attributes:
        record: type of the content.
        name: name of such a file, with its article, for messages.
        error: class of the errors.
        remedy: advice for a damaged file.
        schemas: readable versions of the format; empty if files have no `schema`.
        most_bytes: largest size of a file that is read.
    """

    record: type[Record]
    name: str
    error: type[CostmodelError]
    remedy: str
    schemas: Sequence[int] = ()
    most_bytes: int = MOST_BYTES

    def read(self, path: Path) -> Record:
        """Read the content of a file.

        Raises:
            CostmodelError: of the format's class, in one line: the file cannot be read, or has another format.
        """
        return self.check(self.load(path), str(path))

    def load(self, path: Path) -> Any:
        """Read the JSON of a file without checking its content.

        Raises:
            CostmodelError: of the format's class, in one line: the file cannot be read, or is not JSON.
        """
        try:
            return parse_json(read_regular(path, self.most_bytes))
        except OSError as error:
            raise self.error(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise self._refusal(str(path), error) from error

    def check(self, data: Any, where: str) -> Record:
        """Convert data to the format's record.

        Args:
            data: data of JSON's types.
            where: file that it came from, for messages.

        Raises:
            CostmodelError: of the format's class, in one line: the wrong field, and the expected value.
        """
        version = data.get("schema") if isinstance(data, dict) else None
        if self.schemas and version not in self.schemas:
            known = " or ".join(map(str, self.schemas))
            raise self.error(f"{where}: not {self.name} of schema {known}; {self.remedy}")
        try:
            return convert(data, self.record)
        except ValueError as error:
            raise self._refusal(where, error) from error

    def _refusal(self, where: str, error: ValueError) -> CostmodelError:
        return self.error(f"{where}: not {self.name}: {error}; {self.remedy}")


def read_json(path: Path) -> Any:
    """Read the JSON of a regular file.

    Raises:
        OSError: the file cannot be read, or is no regular file.
        ValueError: the content is not JSON, in one line.
    """
    return parse_json(read_regular(path))


def parse_json(content: bytes | str, constants: bool = False) -> Any:
    """Parse JSON with unique keys, integers of 64 bits, finite floats and valid Unicode.

    Args:
        content: text, in bytes as UTF-8 without a byte-order mark.
        constants: whether to accept NaN and Infinity, which are not JSON, as floats.

    Raises:
        ValueError: the content is not such JSON; the message is one line.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        data = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=float if constants else _refuse_constant,
        )
        if "\\ud" in text or "\\uD" in text:  # a lone surrogate is legal JSON, but cannot be encoded
            json.dumps(data, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeError:
        raise ValueError("it is not text in UTF-8") from None
    except ValueError as error:
        raise ValueError(one_line(str(error))) from None
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return found


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def convert(data: Any, kind: type[Record]) -> Record:
    """Convert data of JSON's types to a declared type.

    Raises:
        ValueError: the data do not fit; one line that names the field.
    """
    try:
        return msgspec.convert(data, kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ValueError(_described(str(error))) from None


def _described(message: str) -> str:
    """Reword a message of msgspec as `field: problem`."""
    problem, _, place = message.replace("`", "").rpartition(" - at $")
    field = f"{place.lstrip('.')}: " if problem and place else ""
    reason = problem or place
    return one_line(f"{field}{reason[:1].lower()}{reason[1:]}")


def one_line(text: str) -> str:
    """Escape control characters in a text and shorten it, as it may quote a hostile file."""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return shown if len(shown) <= LONGEST_MESSAGE else f"{shown[:LONGEST_MESSAGE]}..."


def read_regular(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Read the bytes of a regular file.

    Raises:
        OSError: the file cannot be read, is no regular file, or is too large.
    """
    with open_regular(path, most_bytes) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # files in /proc report a size of 0
        raise _too_large(path, most_bytes)
    return content


def open_regular(path: Path, most_bytes: int = MOST_BYTES) -> BufferedReader:
    """Open a regular file, or a link to one, for reading, without blocking on a FIFO.

    Raises:
        OSError: the file cannot be read, is no regular file, or is too large.
    """
    require_regular(path)  # before opening, which has side effects for some devices
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(handle)  # the file may have been replaced in the meantime
        _require_regular(path, found)
        if found.st_size > most_bytes:
            raise _too_large(path, most_bytes)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def require_regular(path: Path) -> None:
    """Refuse a path that is no regular file.

    Raises:
        OSError: the path does not exist, or is a directory, a FIFO, a device or a socket.
    """
    try:
        found = path.stat()
    except ValueError as error:
        raise OSError(None, "impossible name for a file") from error
    _require_regular(path, found)


def _require_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(None, f"it is {_KINDS.get(stat.S_IFMT(found.st_mode), 'no regular file')}, not a file", str(path))


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def _too_large(path: Path, most_bytes: int) -> OSError:
    return OSError(None, f"it is larger than {most_bytes >> 20} MiB", str(path))
