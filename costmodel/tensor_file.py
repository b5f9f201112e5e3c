"""Named arrays in a safetensors file with JSON metadata; reading one executes nothing from it."""

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
"""Largest size of a file that is read."""
LARGEST_HEADER = 16 << 20
"""Largest size of a header, which lists the arrays."""
Tensors = Mapping[str, npt.NDArray[Any]]
Content = TypeVar("Content")


def write_tensors(path: Path, tensors: Tensors, about: Mapping[str, object], schema: int = SCHEMA) -> str:
    """Write arrays and metadata to a file, whole or not at all, and return the file's SHA-256."""
    from safetensors.numpy import save

    whole = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    data = save(whole, metadata={"schema": str(schema), **{key: json.dumps(value) for key, value in about.items()}})
    write_whole(path, data)
    return hashlib.sha256(data).hexdigest()


def read_tensors(
    path: Path,
    what: str,
    parse: Callable[[Mapping[str, Any], Tensors], Content],
    sha256: str | None = None,
    schema: int = SCHEMA,
) -> Content:
    """Read a file's metadata and arrays through a parser.

    Args:
        path: the file.
        what: kind of file, for messages.
        parse: makes the result from metadata and arrays, and may raise anything for unsuitable ones; the path is put
            before the message of a ProfileError.
        sha256: expected hash of the file; None for any.
        schema: version of the format that is read.

    Raises:
        ProfileError: the file is missing or damaged, has another hash or schema, or `parse` refuses it.
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
        content = parse(*_parse(data, schema))
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from error
    except Exception as error:  # a hostile file may raise anything, and is refused in one line
        reason = one_line(str(error)) if type(error) is ValueError else type(error).__name__
        raise ProfileError(f"{path}: not a {what} file: {reason}") from error
    if isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        data.madvise(mmap.MADV_DONTNEED)  # hashing read all of it, predicting reads parts: they are mapped again
    return content


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Type, shape and offsets of an array in the header of a file.

    Attributes:
        dtype: type by the format's name.
        shape: shape of the array.
        data_offsets: begin and end, in bytes after the header.
    """

    dtype: Literal["F16", "F32", "F64", "I8", "I16", "I32", "I64"]
    shape: Annotated[tuple[Count, ...], Meta(max_length=4)]
    data_offsets: tuple[Count, Count]


DTYPES = {
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
}
"""Accepted types of arrays by the format's names."""


def _parse(data: bytes | mmap.mmap, expected: int) -> tuple[dict[str, Any], Tensors]:
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= min(len(data) - 8, LARGEST_HEADER):
        raise ValueError("its header is damaged")
    header = convert(parse_json(data[8 : 8 + size]), dict[str, Any])
    metadata = convert(header.pop("__metadata__", None), dict[str, str])
    if (schema := metadata.pop("schema", None)) != str(expected):
        raise ProfileError(f"schema {schema!r}, this version reads {expected}; train it again")
    places = convert(header, dict[str, Place])
    tensors = {name: _in_place(data, 8 + size, place) for name, place in places.items()}
    return {key: parse_json(value) for key, value in metadata.items()}, tensors


def _in_place(data: bytes | mmap.mmap, start: int, place: Place) -> npt.NDArray[Any]:
    """An array as a view of the file's bytes; the format's own library would copy it.

    Memory is short beside torch's imports, and of a mapped file only the pages in use are read.
    """
    begin, end = place.data_offsets
    kind, count = np.dtype(DTYPES[place.dtype]), math.prod(place.shape)
    if end - begin != kind.itemsize * count or start + end > len(data):
        raise ProfileError("the offsets of its tensors do not fit their shapes")
    return np.frombuffer(data, kind, count, start + begin).reshape(place.shape)


LARGEST = float(np.finfo(np.float32).max)
"""Largest finite float32."""


def finite_float32(
    name: str, tensor: npt.NDArray[Any], least: float = -LARGEST, most: float = LARGEST
) -> npt.NDArray[np.float32]:
    """The tensor, after checking that it is float32 with values in a range.

    Args:
        name: name of the tensor, for messages.
        tensor: tensor from a file.
        least: least possible value.
        most: largest possible value.

    Raises:
        ProfileError: the tensor has another type, or a value that is NaN or out of range.
    """
    if tensor.dtype != np.float32:
        raise ProfileError(f"tensor {name} is {tensor.dtype}, not finite float32")
    if tensor.size and not (tensor.min() >= least and tensor.max() <= most):  # min and max of a NaN are NaN
        bounds = "" if most == LARGEST else f" from {least:g} to {most:g}"
        raise ProfileError(f"tensor {name} is not finite float32{bounds}")
    return tensor
