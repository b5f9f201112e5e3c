"""Files that appear whole or not at all: written under a temporary name beside them, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file, text as UTF-8.

    Raises:
        OSError: it cannot be written; what was there is there yet.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the file's name when the block ends well, and is removed when it does not.

    Raises:
        OSError: nothing can be written there.
    """
    temporary = reserve(path)
    try:
        yield temporary
        take_name(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def reserve(path: Path) -> Path:
    """An empty file of a name of its own, beside the one that `path` is or links to."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
    os.close(handle)
    return Path(name)


def take_name(temporary: Path, path: Path) -> None:
    """Gives a reserved file its name, and the permissions of what was there, or those that a new file would have."""
    target = path.resolve()
    temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
    temporary.replace(target)


def without_temporary_directory() -> None:
    """Lets torch be imported where no temporary directory can be written to, as on a full disk.

    Inductor asks for one on import to name its cache, though a prediction writes nothing there; so name it one.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        place = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - a name alone: nothing can be written there
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", place)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
