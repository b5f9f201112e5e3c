"""Models of timm (an optional extra), by the names of `timm.list_models()`, with or without a tag."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from costmodel.errors import RequestError, UnknownModelError, own_words
from costmodel.zoo.build import build
from costmodel.zoo.request import DEFAULT_SIZE, Request, did_you_mean
from costmodel.zoo.torchvision_import import load_torchvision


def load_timm_model(name: str, request: Request) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Load a model by name, with random weights and an input of its default size; nothing is downloaded.

    Raises:
        UnknownModelError: unknown name; similar names are suggested.
        RequestError: timm is not installed, or the model cannot be built as requested.
    """
    load_torchvision()  # timm imports it, and may find it broken
    try:
        import timm
    except ImportError as error:
        raise RequestError(f"timm:{name} needs timm: pip install 'costmodel[timm]' ({error})") from error
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        hint = did_you_mean(architecture, timm.list_models())
        raise UnknownModelError(f"unknown model 'timm:{name}'{hint}")
    try:
        module: nn.Module = build(lambda: _create(timm.create_model, name, request.img_size))
    except Exception as error:  # constructors in timm may raise any exception
        raise RequestError(f"timm:{name} cannot be built: {own_words(error)}") from error
    channels, size = _own_input(module)
    return module, (request.image(size, channels),)


def _create(create: Any, name: str, img_size: int | None) -> nn.Module:
    """Create a model, with the image size if it has that option; convolutional models accept any size."""
    if img_size is not None:
        try:
            return create(name, pretrained=False, img_size=img_size)  # type: ignore[no-any-return]
        except TypeError:
            pass
    return create(name, pretrained=False)  # type: ignore[no-any-return]


def _own_input(module: nn.Module) -> tuple[int, int]:
    config = getattr(module, "pretrained_cfg", None) or {}
    channels, _, size = config.get("input_size") or (3, DEFAULT_SIZE, DEFAULT_SIZE)
    return int(channels), int(size)
