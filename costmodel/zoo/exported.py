"""Programs that `torch.export.save` wrote: `model.pt2`.

`torch.export.load` falls back to unpickling, which runs whatever a file says. So the archive's table of contents is
read first and every payload that only a pickle or a native library can hold is refused; for the time of the load,
torch is told to unpickle nothing but tensors.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from costmodel.errors import RequestError
from costmodel.zoo.request import Request, own_words

_ZIP_MAGIC = b"PK\x03\x04"
_NO_CODE = "and costmodel runs no code from a model file"
_SAFE_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_REFUSED = {
    "data/aotinductor/": "compiled code",
    "data/constants/opaque_obj": "a pickled object",
    "data/constants/custom_obj": "a scripted object",
}
"""Start of a record's name in the archive -> what it holds."""


def load_exported_model(path: Path, request: Request) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The exported program on the meta device, with the inputs that it was exported with.

    Raises:
        RequestError: no such file, not such a file, one that would have to run code to be loaded, or a request for
            sizes or types other than those it was exported with.
    """
    if request.precision != "float32" or request.channels_last:
        raise RequestError(f"{path} runs as it was exported; leave out the precision and channels_last")
    _check_archive(path)
    try:
        with _tensors_only():
            program = torch.export.load(path)
    except pickle.UnpicklingError as error:
        raise RequestError(f"{path} holds a pickle of more than tensors, {_NO_CODE}") from error
    except Exception as error:  # a damaged archive fails in as many ways as it has bytes
        raise RequestError(f"{path} cannot be loaded as an exported program: {_brief(error)}") from error
    args, kwargs = program.example_inputs or ((), {})
    if kwargs or not args or not all(isinstance(arg, torch.Tensor) for arg in args):
        raise RequestError(f"{path} was exported with inputs other than positional tensors; export it with tensors")
    _check_sizes(path, args[0], request)
    from torch.export.passes import move_to_device_pass

    program = move_to_device_pass(program, "meta")
    return program.module(), tuple(arg.to("meta") for arg in args)


def _check_archive(path: Path) -> None:
    if not path.is_file():
        raise RequestError(f"no file {path}; expected a file that torch.export.save wrote")
    try:
        with path.open("rb") as file:
            magic = file.read(len(_ZIP_MAGIC))
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    if magic != _ZIP_MAGIC:
        raise RequestError(f"{path} is not a torch.export file (not a zip archive); write one with torch.export.save")
    try:
        reader = torch._C.PyTorchFileReader(str(path))
        records = reader.get_all_records()
        configs = [json.loads(reader.get_record(name)) for name in records if name.endswith("_config.json")]
    except Exception as error:  # a damaged archive fails in as many ways as it has bytes
        raise RequestError(f"{path} is a damaged archive: {_brief(error)}") from error
    if not any(name.startswith("models/") for name in records):
        raise RequestError(f"{path} holds no exported program; write one with torch.export.save (torch >= 2.8)")
    for start, held in _REFUSED.items():
        if any(name.startswith(start) for name in records):
            raise RequestError(f"{path} holds {held}, {_NO_CODE}")
    if any(_is_pickled(config) for config in configs):
        raise RequestError(f"{path} holds a pickled tensor, {_NO_CODE}")


def _brief(error: Exception) -> str:
    """What torch says, without the advice that follows."""
    return textwrap.shorten(own_words(error), 120, placeholder=" ...")


def _is_pickled(config: object) -> bool:
    payloads = config.get("config") if isinstance(config, dict) else None
    entries = payloads.values() if isinstance(payloads, dict) else ()
    return any(isinstance(entry, dict) and bool(entry.get("use_pickle")) for entry in entries)


def _check_sizes(path: Path, image: torch.Tensor, request: Request) -> None:
    shape = tuple(image.shape)
    batch_fits = request.batch_size is None or shape[:1] == (request.batch_size,)
    size_fits = request.img_size is None or shape[-2:] == (request.img_size, request.img_size)
    if not (batch_fits and size_fits):
        seen = "x".join(map(str, shape))
        raise RequestError(f"{path} was exported for an input of {seen}; leave out the batch size and the image size")


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Within it, torch unpickles tensors and plain containers only, and does not log the attempts that fail."""
    before, level = os.environ.get(_SAFE_ONLY), logging.root.manager.disable
    os.environ[_SAFE_ONLY] = "1"
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        if before is None:
            del os.environ[_SAFE_ONLY]
        else:
            os.environ[_SAFE_ONLY] = before
