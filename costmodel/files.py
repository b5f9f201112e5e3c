"""Writing of files whole or not at all: under a temporary name in the same directory, then renamed."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8; a device or pipe is written to, not replaced.

    Raises:
        OSError: the file cannot be written; an existing one is unchanged.
    """
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not (path.is_file() or path.is_dir()):
        path.write_bytes(data)
        return
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def check_writable(path: Path) -> None:
    """Check that a file can be created in the directory of `path`; none is left behind.

    Raises:
        OSError: no file can be created.
    """
    _reserve(_target(path)).unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Temporary path to write to, which is renamed to `path` at the end of the block, or removed on an exception.

    Paths are made absolute, as the block may change the working directory.

    Raises:
        OSError: no file can be created there.
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
    """Absolute path of the file that `path` names or links to."""
    try:
        return path.resolve()
    except RuntimeError:  # a loop of links, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


def _reserve(target: Path) -> Path:
    """Create an empty file with a unique name in the directory of the target."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", dir=target.parent)
    os.close(handle)
    return Path(name)


def without_temporary_directory() -> None:
    """Let torch be imported where no temporary directory is writable, as on a full disk.

    On import Inductor chooses a cache directory, although a prediction writes nothing there; so set one.
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
