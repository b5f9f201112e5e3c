"""Modules from user code: `path/to/file.py:callable` and `package.module:callable`.

The path comes from the command line or a caller, never from a data or model file.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from costmodel.errors import RequestError, own_words
from costmodel.zoo.build import as_on_gpu, build
from costmodel.zoo.placement import as_written, own_precision
from costmodel.zoo.request import Inputs, Request, did_you_mean
from costmodel.zoo.source_files import is_installed
from costmodel.zoo.torchvision_import import tolerate_missing_operators

T = TypeVar("T")
_NOT_USERS = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent), "<frozen")
"""Beginnings of the names of files whose lines say nothing about the user's code."""


def load_user_model(spec: str, request: Request) -> tuple[nn.Module, Inputs]:
    """Call user code that returns a module, or `(module, inputs)`.

    Inputs are a tensor, a tuple or list of positional inputs, or a dict of keyword inputs; each input may be a tensor,
    contain tensors, or be a plain value. A module without inputs gets a batch of images with three channels, in its own
    precision. A callable with parameters `batch_size` and `img_size` gets the sizes that are requested. Code that asks
    for a GPU runs as on a machine with one.

    Raises:
        RequestError: the file or module, the name in it, the call, or its result is wrong; the message quotes an
            exception of the user's code.
    """
    place, _, name = spec.rpartition(":")
    directory = Path(place).resolve().parent if place.endswith(".py") else Path.cwd()
    tolerate_missing_operators()
    with importable(directory), as_on_gpu():
        namespace = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
        found = _users(lambda: _find(namespace, name, place), f"{spec} raised")
        if _users(lambda: isinstance(found, nn.Module), f"{spec} raised"):
            return _with_inputs(_users(lambda: copy.deepcopy(found), f"{spec} cannot be copied:"), spec, request)
        if not callable(found):
            raise RequestError(f"{spec} is of type {type(found).__name__}, not a callable that returns an nn.Module")
        taken = request.taken_by(found)
        built = _users(lambda: build(partial(found, **taken)), f"{spec} raised")
    return _users(lambda: _with_inputs(built, spec, request, taken), f"the result of {spec} raised")


def _with_inputs(built: object, spec: str, request: Request, taken: Iterable[str] = ()) -> tuple[nn.Module, Inputs]:
    if isinstance(built, nn.Module):
        module = as_written(built)
        return module, (request.image().to(own_precision(module)),)
    if not (isinstance(built, tuple) and len(built) == 2 and isinstance(built[0], nn.Module)):
        kinds = f"({', '.join(type(item).__name__ for item in built)})" if isinstance(built, tuple) else ""
        raise RequestError(f"{spec} returned {kinds or type(built).__name__}, not an nn.Module or (nn.Module, inputs)")
    module, inputs = as_written(built[0]), built[1]
    if not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(inputs)):
        raise RequestError(f"{spec} returned inputs without a tensor")
    request.fixed_inputs(spec, taken)
    if isinstance(inputs, Mapping) and all(isinstance(key, str) for key in inputs):
        return module, dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return module, tuple(inputs)
    if isinstance(inputs, torch.Tensor):
        return module, (inputs,)
    raise RequestError(
        f"{spec} returned inputs that are no tensor, tuple, list, or dict by name: {type(inputs).__name__}"
    )


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise RequestError(f"no file {path}; expected path/to/file.py:callable")
    name = f"_costmodel_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RequestError(f"{path} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up by name
    _users(lambda: spec.loader.exec_module(module), f"{path} raised while it was loaded:")  # type: ignore[union-attr]
    return module


def _load_module(name: str) -> ModuleType:
    try:
        return _users(lambda: importlib.import_module(name), f"module {name} raised while it was imported:")
    except RequestError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name and f"{name}.".startswith(f"{cause.name}."):
            raise RequestError(f"no module {cause.name!r}; {name}:... is looked up from {os.getcwd()}") from cause
        raise


def _find(namespace: ModuleType, name: str, place: str) -> Any:
    found: Any = namespace
    for part in name.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, (known for known in dir(found) if not known.startswith("_")))
            raise RequestError(f"{place} has no {name!r}{hint}")
        found = getattr(found, part)
    return found


def _users(call: Callable[[], T], failed: str) -> T:
    """Call user code; any exception, SystemExit included, becomes a RequestError of one line that quotes it."""
    try:
        return call()
    except (RequestError, KeyboardInterrupt):
        raise
    except BaseException as error:  # an exit too
        places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        places = [(file, line) for file, line in places if not file.startswith(_NOT_USERS)]
        places = [(file, line) for file, line in places if not is_installed(file)] or places
        where = f" ({places[-1][0]}:{places[-1][1]})" if places else ""
        if isinstance(error, SyntaxError | ModuleNotFoundError):
            where = ""  # its message says where, or the frame is the import system's
        raise RequestError(f"{failed} {own_words(error)}{where}") from error


@contextmanager
def importable(directory: Path) -> Iterator[None]:
    """Put a directory first on `sys.path`, as when Python runs a file there."""
    before = list(sys.path)
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path[:] = before
