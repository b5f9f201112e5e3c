"""Programs written by `torch.export.save`: `model.pt2`.

`torch.export.load` may unpickle, which runs code from the file. Therefore `archive` checks the file first, torch
unpickles only tensors during the load, and the guards, which are Python source in the file, are left out.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from costmodel.errors import RequestError
from costmodel.zoo.archive import NO_CODE, brief, check_archive
from costmodel.zoo.bounded import bound
from costmodel.zoo.request import Request

_SAFE_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def load_exported_model(path: Path, request: Request) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Load an exported program on the meta device, with its example inputs.

    Raises:
        RequestError: no such file, another kind of file, a file whose loading would run code, or a request for sizes
            or dtypes other than at export.
    """
    if request.precision is not None or request.channels_last:
        raise RequestError(f"{path} runs as it was exported; leave out the precision and channels_last")
    from torch.export.passes import move_to_device_pass

    check_archive(path)
    try:
        with _tensors_only():
            program = torch.export.load(path)
            args, kwargs = program.example_inputs or ((), {})
            program = move_to_device_pass(program, "meta")
            bound(program)
            module = program.module(check_guards=False)
    except pickle.UnpicklingError as error:
        raise RequestError(f"{path} holds a pickle of more than tensors, {NO_CODE}") from error
    except Exception as error:  # a damaged archive can raise any error
        raise RequestError(f"{path} cannot be loaded as an exported program: {brief(error)}") from error
    if kwargs or not args or not all(isinstance(arg, torch.Tensor) for arg in args):
        raise RequestError(f"{path} was exported with inputs other than positional tensors; export it with tensors")
    _check_sizes(path, args[0], request)
    return module, tuple(arg.to("meta") for arg in args)


def _check_sizes(path: Path, image: torch.Tensor, request: Request) -> None:
    shape = tuple(image.shape)
    batch_fits = request.batch_size is None or shape[:1] == (request.batch_size,)
    size_fits = request.img_size is None or shape[-2:] == (request.img_size, request.img_size)
    if not (batch_fits and size_fits):
        seen = "x".join(map(str, shape))
        raise RequestError(f"{path} was exported for an input of {seen}; leave out the batch size and the image size")


@contextmanager
def _tensors_only() -> Iterator[None]:
    """Restrict unpickling in torch to tensors and plain containers, and suppress its logs."""
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
