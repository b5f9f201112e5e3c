"""Files that appear whole or not at all: written under a temporary name beside them, then renamed."""

from __future__ import annotations

import errno
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
