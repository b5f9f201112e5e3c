"""Arrays as one safetensors file, with the JSON that names them: nothing in it is executed when it is read."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from costmodel.errors import ProfileError
from costmodel.files import write_whole
from costmodel.records import Count, convert, one_line, open_regular, parse_json

SCHEMA = 1
MOST_BYTES = 4 << 30
"""Size of the largest file of arrays that is read."""
LARGEST_HEADER = 16 << 20
"""Bytes that say which arrays there are."""
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
        with open_regular(path, MOST_BYTES) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest() if sha256 is not None else None
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    if digest != sha256:
        raise ProfileError(f"{path}: its SHA-256 is not the one in card.json; the profile is damaged, install it again")
    try:
        content = parse(*_parse(data))
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from error
    except Exception as error:  # whatever a hostile file raises, it is refused in one line
        said = one_line(str(error)) if type(error) is ValueError else type(error).__name__
        raise ProfileError(f"{path}: not a {what} file: {said}") from error
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED)  # verified whole, it is wanted in parts: what is read again is mapped again
    return content


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Type, shape and place of an array in a file, as its header has them.

    Attributes:
        dtype: by the format's name.
        shape: of the array.
        data_offsets: begin and end, bytes behind the header.
    """

    dtype: Literal["F32", "F64", "I8", "I16", "I32"]
    shape: Annotated[tuple[Count, ...], Meta(max_length=4)]
    data_offsets: tuple[Count, Count]


DTYPES = {"F32": np.float32, "F64": np.float64, "I8": np.int8, "I16": np.int16, "I32": np.int32}
"""Types of arrays in a file, by the format's names."""


def _parse(data: bytes | mmap.mmap) -> tuple[dict[str, Any], Tensors]:
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= min(len(data) - 8, LARGEST_HEADER):
        raise ValueError("its header is damaged")
    header = convert(parse_json(data[8 : 8 + size]), dict[str, Any])
    metadata = convert(header.pop("__metadata__", None), dict[str, str])
    if (schema := metadata.pop("schema", None)) != str(SCHEMA):
        raise ProfileError(f"schema {schema!r}, this version reads {SCHEMA}; train it again")
    places = convert(header, dict[str, Place])
    tensors = {name: _in_place(data, 8 + size, place) for name, place in places.items()}
    return {key: parse_json(value) for key, value in metadata.items()}, tensors


def _in_place(data: bytes | mmap.mmap, start: int, place: Place) -> npt.NDArray[Any]:
    """An array of a safetensors file where it lies, not copied, as the format's own library would.

    Predicting has little room beside what importing torch takes: of a mapped file only what is looked at is read.
    """
    begin, end = place.data_offsets
    kind, count = np.dtype(DTYPES[place.dtype]), math.prod(place.shape)
    if end - begin != kind.itemsize * count or start + end > len(data):
        raise ProfileError("the places of its tensors are not those of their shapes")
    return np.frombuffer(data, kind, count, start + begin).reshape(place.shape)


LARGEST = float(np.finfo(np.float32).max)


def finite_float32(
    name: str, tensor: npt.NDArray[Any], least: float = -LARGEST, most: float = LARGEST
) -> npt.NDArray[np.float32]:
    """The tensor itself.

    Args:
        name: of the tensor, for the message.
        tensor: read from a file.
        least: possible value.
        most: the largest possible value.

    Raises:
        ProfileError: it is of another type, or holds a value that is no number, or not a possible one.
    """
    if tensor.dtype != np.float32:
        raise ProfileError(f"tensor {name} is {tensor.dtype}, not finite float32")
    if tensor.size and not (tensor.min() >= least and tensor.max() <= most):  # a NaN is the least and the largest
        bounds = "" if most == LARGEST else f" from {least:g} to {most:g}"
        raise ProfileError(f"tensor {name} is not finite float32{bounds}")
    return tensor
