"""Check of archives of `torch.export.save` before torch reads them: content that would run code is refused.

`torch.export.load` unpickles some records. `program_record` checks the programs in an archive.
"""

from __future__ import annotations

import io
import json
import re
import textwrap
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch

from costmodel.errors import RequestError, own_words
from costmodel.zoo.program_record import objections

NO_CODE = "and costmodel runs no code from a model file"
_ZIP_MAGIC = b"PK\x03\x04"
_REFUSED = {
    "data/aotinductor/": "compiled code",
    "data/constants/opaque_obj": "a pickled object",
    "data/constants/custom_obj": "a scripted object",
}
"""Content of refused records, by the prefix of their name in the archive."""
_MODEL = re.compile(r"models/\w+\.json")


def check_archive(path: Path) -> None:
    """Check that torch runs no code from a file when it loads it.

    Raises:
        RequestError: no such file, another kind of file, or a file whose loading would run code.
    """
    _check_is_zip(path)
    try:
        records, contents = _read(path)
        _check_programs(path, contents)
    except RequestError:
        raise
    except Exception as error:  # a damaged archive can raise any error
        raise RequestError(f"{path} is a damaged archive: {brief(error)}") from error
    models = [name for name in records if name.startswith("models/")]
    if not models or not all(map(_MODEL.fullmatch, models)):
        raise RequestError(f"{path} holds no exported program; write one with torch.export.save (torch >= 2.8)")
    for start, held in _REFUSED.items():
        if any(name.startswith(start) for name in records):
            raise RequestError(f"{path} holds {held}, {NO_CODE}")
    if any(_is_pickled(config) for name, config in contents.items() if name.endswith("_config.json")):
        raise RequestError(f"{path} holds a pickled tensor, {NO_CODE}")


def _check_is_zip(path: Path) -> None:
    if not path.is_file():
        raise RequestError(f"no file {path}; expected a file that torch.export.save wrote")
    try:
        with path.open("rb") as file:
            magic = file.read(len(_ZIP_MAGIC))
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    if magic != _ZIP_MAGIC:
        raise RequestError(f"{path} is not a torch.export file (not a zip archive); write one with torch.export.save")


def _read(path: Path) -> tuple[list[str], dict[str, object]]:
    """Names of all records, and contents of JSON records, through torch's own reader."""
    _check_is_stored(path, path)
    reader = torch._C.PyTorchFileReader(str(path))
    records = list(reader.get_all_records())
    for inner in (
        reader.get_record(name) for name in records if name.endswith(".pt")
    ):  # tensors, written by torch.save
        if inner.startswith(_ZIP_MAGIC):
            _check_is_stored(path, io.BytesIO(inner))
    return records, {name: json.loads(reader.get_record(name)) for name in records if name.endswith(".json")}


def _check_is_stored(path: Path, archive: Path | io.BytesIO) -> None:
    """Refuse a zip archive with compressed entries, whose unpacked size is unlimited."""
    with zipfile.ZipFile(archive) as entries:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries.infolist()):
            raise RequestError(f"{path} is compressed, which torch.export.save does not do; write it with that")


def _check_programs(path: Path, contents: Mapping[str, object]) -> None:
    """Refuse a program in which torch would call, evaluate or import anything but operators and sizes."""
    for name, content in contents.items():
        if _MODEL.fullmatch(name) and (objection := next(objections(content), None)):
            raise RequestError(f"{path} {objection}, {NO_CODE}")


def brief(error: Exception) -> str:
    """Shorten a message of torch to its first sentence."""
    return textwrap.shorten(own_words(error), 120, placeholder=" ...")


def _is_pickled(config: object) -> bool:
    payloads = config.get("config") if isinstance(config, dict) else None
    entries = payloads.values() if isinstance(payloads, dict) else ()
    return any(isinstance(entry, dict) and bool(entry.get("use_pickle")) for entry in entries)
