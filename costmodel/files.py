"""Files that appear whole or not at all: written under a temporary name beside them, then renamed; and JSON in them."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

MOST_DIGITS = 18


def read_json(path: Path) -> Any:
    """What a file holds as JSON, where numbers are finite and no integer has over 18 digits.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON's")


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file, text as UTF-8.

    Raises:
        OSError: it cannot be written; what was there is there yet.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def check_writable(path: Path) -> None:
    """Nothing, if a file can be made beside `path`. It is gone again, so that none is left if the process dies.

    Raises:
        OSError: it cannot.
    """
    _reserve(_target(path)).unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the file's name when the block ends well, and is removed when it does not.

    Both are absolute: the block may change the process's directory.

    Raises:
        OSError: nothing can be written there.
    """
    target = _target(path)
    temporary = _reserve(target)
    try:
        yield temporary
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """The absolute path of what `path` is or links to."""
    try:
        return path.resolve()
    except RuntimeError:  # how Python before 3.13 names a loop of links
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def _reserve(target: Path) -> Path:
    """An empty file of a name of its own, beside the target."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
    os.close(handle)
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
