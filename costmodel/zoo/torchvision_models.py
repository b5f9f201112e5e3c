"""Models of torchvision, by the names of `torchvision.models.get_model`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import nn

from costmodel.errors import RequestError, UnknownModelError, own_words
from costmodel.zoo.build import build
from costmodel.zoo.request import DEFAULT_SIZE, Request, did_you_mean
from costmodel.zoo.torchvision_import import load_torchvision

VIDEO_FRAMES = 16
"""Frames in the clip for a video model; most evaluations in torchvision use this number."""

_SIZE_OPTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "vision_transformer": lambda size: {"image_size": size},
    "maxvit": lambda size: {"input_size": (size, size)},
}
"""Builder options for the image size, by family of models that are built for one size."""

_SPECS = "other forms: timm:NAME, hf:CONFIG, FILE.py:CALLABLE, MODULE:CALLABLE, FILE.pt2"


def load_torchvision_model(name: str, request: Request) -> tuple[nn.Module, tuple[Any, ...]]:
    """Load a model by name, with inputs of the size of its default weights; nothing is downloaded.

    A detection model gets a list of images, one a batch element.

    Raises:
        UnknownModelError: unknown name; similar names are suggested.
        RequestError: the model cannot be built as requested.
    """
    models = load_torchvision().models
    try:
        builder = models.get_model_builder(name)
    except ValueError:
        hint = did_you_mean(name.lower(), models.list_models())
        raise UnknownModelError(f"unknown model {name!r}{hint} ({_SPECS})") from None
    family = builder.__module__.removeprefix("torchvision.models.").split(".")
    size = request.img_size or _own_size(models, builder)
    options = _options(builder) | (_SIZE_OPTIONS[family[-1]](size) if family[-1] in _SIZE_OPTIONS else {})
    try:
        module: nn.Module = build(lambda: builder(**options))
    except (ValueError, AssertionError) as error:
        raise RequestError(f"{name} cannot be built for image size {size}: {own_words(error)}") from error
    if family[0] == "detection":
        image = request.image(size if request.img_size else _detector_size(module))
        return module, (list(image),)  # one tensor [3, height, width] an image, as they may differ in size
    frames = VIDEO_FRAMES if family[0] == "video" else None
    images = 2 if family[0] == "optical_flow" else 1
    return module, tuple(request.image(size, frames=frames) for _ in range(images))


def _options(builder: Callable[..., nn.Module]) -> dict[str, Any]:
    """Builder options for random weights, without slow initialisation."""
    known = inspect.signature(builder).parameters
    options: dict[str, Any] = {name: None for name in ("weights", "weights_backbone") if name in known}
    if builder.__name__ in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    return options


def _detector_size(module: nn.Module) -> int:
    """Size to which a detection model scales its images."""
    sizes = getattr(module.get_submodule("transform"), "min_size", (DEFAULT_SIZE,))
    return int(sizes[-1])


def _own_size(models: ModuleType, builder: Callable[..., nn.Module]) -> int:
    """Image size of the model's default weights; DEFAULT_SIZE for a model without weights."""
    try:
        transforms = models.get_model_weights(builder).DEFAULT.transforms
    except (ValueError, AttributeError):
        return DEFAULT_SIZE
    options = getattr(transforms, "keywords", {})
    size = options.get("crop_size") or options.get("resize_size") or DEFAULT_SIZE
    return int(size[-1] if isinstance(size, tuple | list) else size)
