"""Arrays as one safetensors file, with the JSON that names them: nothing in it is executed when it is read."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from costmodel.errors import ProfileError
from costmodel.files import write_whole

SCHEMA = 1
Tensors = Mapping[str, npt.NDArray[Any]]
Content = TypeVar("Content")


def write_tensors(path: Path, tensors: Tensors, about: Mapping[str, object]) -> str:
    """Writes arrays and what is said about them; the file's SHA-256."""
    from safetensors.numpy import save

    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    data = save(whole, metadata={"schema": str(SCHEMA), **{key: json.dumps(value) for key, value in about.items()}})
    write_whole(path, data)
    return hashlib.sha256(data).hexdigest()


def read_tensors(
    path: Path, what: str, parse: Callable[[Mapping[str, Any], Tensors], Content], sha256: str | None = None
) -> Content:
    """What `parse` makes of a file's arrays and of what is said about them.

    Args:
        path: the file.
        what: it should be, for the message.
        parse: may raise whatever it likes at what does not fit; a ProfileError passes with the path before it.
        sha256: of the file; None for any.

    Raises:
        ProfileError: the file is missing, damaged, of another hash or schema, or not what it should be.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest() if sha256 is not None else None
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    if digest != sha256:
        raise ProfileError(f"{path}: its SHA-256 is not the one in card.json; the profile is damaged, install it again")
    try:
        content = parse(*_parse(data))
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from error
    except Exception as error:  # whatever a hostile file raises, it is refused in one line
        raise ProfileError(f"{path}: not a {what} file: {type(error).__name__}") from error
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED)  # verified whole, it is wanted in parts: what is read again is mapped again
    return content


def _parse(data: bytes | mmap.mmap) -> tuple[dict[str, Any], Tensors]:
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__")
    if (schema := metadata.pop("schema", None)) != str(SCHEMA):
        raise ProfileError(f"schema {schema!r}, this version reads {SCHEMA}; train it again")
    tensors = {name: _in_place(data, 8 + size, **entry) for name, entry in header.items()}
    return {key: json.loads(value) for key, value in metadata.items()}, tensors


DTYPES = {"F32": np.float32, "F64": np.float64, "I8": np.int8, "I16": np.int16, "I32": np.int32}
"""Of arrays in a file, by the format's names."""


def _in_place(
    data: bytes | mmap.mmap, start: int, dtype: str, shape: list[int], data_offsets: tuple[int, int]
) -> npt.NDArray[Any]:
    """An array of a safetensors file where it lies, not copied, as the format's own library would.

    Predicting has little room beside what importing torch takes: of a mapped file only what is looked at is read.
    Wherever a damaged file says that an array lies, numpy reads within the file or refuses.
    """
    begin, end = data_offsets
    kind = np.dtype(DTYPES[dtype])
    if min(begin, *shape, 0) < 0 or end - begin != kind.itemsize * math.prod(shape):
        raise ProfileError("the places of its tensors are not those of their shapes")
    return np.frombuffer(data, kind, math.prod(shape), start + begin).reshape(shape)


def finite_float32(name: str, tensor: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The tensor itself.

    Raises:
        ProfileError: it is of another type, or holds what is no number.
    """
    if tensor.dtype != np.float32 or not np.isfinite(tensor).all():
        raise ProfileError(f"tensor {name} is not finite float32")
    return tensor
