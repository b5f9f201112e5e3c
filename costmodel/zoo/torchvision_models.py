"""Models of torchvision, by the names of `torchvision.models.get_model`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import nn

from costmodel.errors import RequestError, UnknownModelError, own_words
from costmodel.zoo.build import build
from costmodel.zoo.request import DEFAULT_SIZE, Request, did_you_mean

VIDEO_FRAMES = 16
"""Frames in the clip for a video model; most evaluations in torchvision use this number."""

_REGIONS = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_MISSING_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align({_REGIONS}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool({_REGIONS}) -> (Tensor, Tensor)",
    f"ps_roi_align({_REGIONS}, int sampling_ratio) -> (Tensor, Tensor)",
    f"ps_roi_pool({_REGIONS}) -> (Tensor, Tensor)",
    (
        "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
        "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
        "SymInt offset_groups, bool use_mask) -> Tensor"
    ),
)
"""Schemas of torchvision's operators, with its names of arguments, which graphs keep."""
_META_KERNELS = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
"""Operators whose meta kernels torchvision registers only with its library."""
_libraries: list[torch.library.Library] = []
"""Library objects kept alive, because their declared operators live as long as they do."""

_SIZE_OPTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "vision_transformer": lambda size: {"image_size": size},
    "maxvit": lambda size: {"input_size": (size, size)},
}
"""Builder options for the image size, by family of models that are built for one size."""

_SPECS = "other forms: timm:NAME, hf:CONFIG, FILE.py:CALLABLE, MODULE:CALLABLE, FILE.pt2"


def load_torchvision() -> ModuleType:
    """Import torchvision, even if its compiled operators do not load.

    A wheel built for another torch (CUDA's torchvision beside the CPU's torch) fails on import, because it registers
    fake implementations of operators that its library would define. Their schemas are declared here instead.

    Raises:
        RequestError: torchvision is not installed or cannot be imported.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise RequestError(f"torchvision cannot be imported: {error}") from error
    except ImportError as error:
        raise RequestError(f"torchvision cannot be imported: {error}") from error
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _MISSING_SCHEMAS:
        if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
            library.define(schema)
    _libraries.append(library)
    package = importlib.import_module("torchvision")
    _run_on_meta(library)
    return package


def _run_on_meta(library: torch.library.Library) -> None:
    """Register torchvision's meta kernels for the declared operators, so that detection models can run on meta."""
    meta = importlib.import_module("torchvision._meta_registrations")
    for name in _META_KERNELS:
        library.impl(name, getattr(meta, f"meta_{name}"), "Meta")
    for name in ("extension", "ops.roi_align"):
        vars(importlib.import_module(f"torchvision.{name}"))["_has_ops"] = lambda: True


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
