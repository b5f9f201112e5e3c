"""Model spec -> module and example inputs on the meta device, without downloading or initialising weights."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from costmodel import checks
from costmodel.checks import checked
from costmodel.concurrency import takes_turns
from costmodel.errors import RequestError, own_words
from costmodel.zoo.build import real_weights
from costmodel.zoo.exported import load_exported_model
from costmodel.zoo.placement import moved, moved_inputs
from costmodel.zoo.random_weights import replace_tiny_weights
from costmodel.zoo.request import PRECISIONS, Inputs, Request
from costmodel.zoo.timm_models import load_timm_model
from costmodel.zoo.torchvision_import import load_torchvision
from costmodel.zoo.torchvision_models import load_torchvision_model
from costmodel.zoo.training_mode import AS_INFERENCE, training_warning
from costmodel.zoo.transformers_models import load_transformers_model
from costmodel.zoo.user_code import load_user_model

__all__ = ["PRECISIONS", "Loaded", "load", "load_real", "load_torchvision"]

META = torch.device("meta")
LIBRARY_PRECISION = "float32"
"""Precision of a library's model unless another is requested; a model from user code keeps its own."""

_CHECKPOINTS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".onnx")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with inputs, ready to be captured.

    Attributes:
        module: module in evaluation mode, with parameters and buffers on the meta device.
        inputs: positional inputs, or a dict of keyword inputs; meta tensors, possibly inside lists, tuples and dicts.
        name: spec that the model was loaded by.
        warnings: changes that the user did not ask for, one line each.
    """

    module: nn.Module
    inputs: Inputs
    name: str
    warnings: tuple[str, ...] = ()


@takes_turns
@checked(
    spec=checks.text,
    batch_size=checks.optional(checks.whole),
    img_size=checks.optional(checks.whole),
    precision=checks.optional(checks.one_of(PRECISIONS)),
    channels_last=checks.flag,
)
def load(
    spec: str,
    *,
    batch_size: int | None = None,
    img_size: int | None = None,
    precision: str | None = None,
    channels_last: bool = False,
) -> Loaded:
    """Load a model on the meta device.

    Args:
        spec: `densenet121` (torchvision), `timm:NAME`, `hf:CONFIG`, `path/to/file.py:callable`,
            `package.module:callable`, or `model.pt2`.
        batch_size: images in one forward pass; None for 1.
        img_size: height and width in pixels; None for the model's default.
        precision: a key of PRECISIONS; None for float32 in a library's model, and for its own in a user's. Complex
            numbers, integers and 8-bit floats are not converted.
        channels_last: whether parameters and inputs are in channels_last.

    Raises:
        UnknownModelError: unknown name; similar names are suggested.
        RequestError: an impossible size or precision, or a file or callable that is not a model.
    """
    request = _request(spec, batch_size, img_size, precision, channels_last)
    with contextlib.redirect_stdout(sys.stderr):  # model code may print; standard output is for results
        module, inputs = _load(spec, request)
        if spec.endswith(".pt2"):  # an exported program is fixed
            return Loaded(module, inputs, spec)
        return _prepare(spec, module, inputs, request)


@takes_turns
def load_real(
    spec: str,
    device: torch.device,
    *,
    batch_size: int | None = None,
    img_size: int | None = None,
    precision: str | None = None,
    channels_last: bool = False,
) -> Loaded:
    """Load a model with weights on a device, with random inputs.

    A model of a library is initialised at random, without vanishing activations. A model from user code is unchanged.

    Raises:
        UnknownModelError: unknown name; similar names are suggested.
        RequestError: as for `load`; or the spec is a file of torch.export.
    """
    if spec.endswith(".pt2"):
        raise RequestError(f"{spec}: an exported program can be predicted but not measured; give the code that made it")
    request = _request(spec, batch_size, img_size, precision, channels_last)
    with contextlib.redirect_stdout(sys.stderr), real_weights():
        module, given = _load(spec, request)
        loaded = _prepare(spec, module, given, request, device)
        inputs = tree_map(partial(_real, device=device), loaded.inputs, given)
        if _is_named(spec):  # a model from user code may be trained
            replace_tiny_weights(loaded.module, inputs)
    return replace(loaded, inputs=inputs)


def _request(
    spec: str, batch_size: int | None, img_size: int | None, precision: str | None, channels_last: bool
) -> Request:
    """Check a request; a library's model gets the default precision."""
    usual = LIBRARY_PRECISION if _is_named(spec) and not spec.endswith(".pt2") else None
    wanted = usual if precision is None else precision
    return Request(batch_size, img_size, wanted, channels_last).check()


def _is_named(spec: str) -> bool:
    """Whether a spec names a model of a library, not user code."""
    source, colon, _ = spec.partition(":")
    return not colon or source in ("timm", "hf")


def _real(tensor: Any, given: Any, device: torch.device) -> Any:
    """Input on a device, like a meta tensor: the values that were given, or random ones."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    if not given.is_meta:
        return made.copy_(given.detach())
    return made.normal_() if made.is_floating_point() else made.zero_()


def _load(spec: str, request: Request) -> tuple[nn.Module, Inputs]:
    source, colon, name = spec.partition(":")
    if source == "timm" and name:
        return load_timm_model(name, request)
    if source == "hf" and name:
        return load_transformers_model(name, request)
    if spec.endswith(".pt2"):
        return load_exported_model(Path(spec), request)
    if colon and spec.rpartition(":")[0] and spec.rpartition(":")[2]:
        return load_user_model(spec, request)
    if spec.endswith(".py"):
        raise RequestError(f"{spec} names a file but no callable in it; write {spec}:CALLABLE")
    if spec.endswith(_CHECKPOINTS):
        raise RequestError(f"{spec} holds weights, not a model; give FILE.py:CALLABLE, or a torch.export file .pt2")
    return load_torchvision_model(spec, request)


def _prepare(spec: str, module: nn.Module, inputs: Inputs, request: Request, device: torch.device = META) -> Loaded:
    """Move a module to a device, in evaluation mode, with the requested precision and layout; inputs stay on meta."""
    try:
        warning = "" if _is_named(spec) else training_warning(module, AS_INFERENCE)
        module = moved(module.eval(), device, request)
        inputs = moved_inputs(inputs, request)
    except (RequestError, KeyboardInterrupt):
        raise
    except BaseException as error:  # from the module's own `train` or `_apply`, possibly SystemExit
        raise RequestError(
            f"{spec} cannot be moved to device {device} with this precision and layout: {own_words(error)}"
        ) from error
    return Loaded(module, inputs, spec, (warning,) if warning else ())
