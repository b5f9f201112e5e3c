"""Vision models of transformers (an optional extra), from a configuration's defaults, with random weights."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import nn

from costmodel.errors import RequestError, UnknownModelError
from costmodel.zoo.build import build
from costmodel.zoo.request import DEFAULT_SIZE, Request, did_you_mean, own_words
from costmodel.zoo.torchvision_models import load_torchvision


def load_transformers_model(name: str, request: Request) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The image classifier of a configuration, or its bare model where it has none; nothing is downloaded.

    Args:
        name: a model type (`vit`) or a configuration class (`ViTConfig`).
        request: batch size, image size.

    Raises:
        UnknownModelError: there is no such configuration; near names are suggested.
        RequestError: transformers is not installed, or the model does not take images or cannot be built.
    """
    load_torchvision()  # transformers imports it, and may find it broken
    try:
        import transformers
    except ImportError as error:
        raise RequestError(f"hf:{name} needs transformers: pip install 'costmodel[hf]' ({error})") from error
    config = _config(transformers, name)
    config.return_dict = False
    if request.img_size is not None and hasattr(config, "image_size"):
        config.image_size = request.img_size
    try:
        module: nn.Module = build(lambda: _from_config(transformers, config))
    except Exception as error:  # transformers' constructors raise whatever the model's author chose
        raise RequestError(f"hf:{name} cannot be built: {own_words(error)}") from error
    taken = getattr(module, "main_input_name", "pixel_values")
    if taken != "pixel_values":
        raise RequestError(f"hf:{name} takes {taken}, not images; costmodel predicts vision models")
    size = getattr(config, "image_size", None) or DEFAULT_SIZE
    channels = getattr(config, "num_channels", None) or 3
    return module, (request.image(int(size[-1] if isinstance(size, tuple | list) else size), int(channels)),)


def _config(transformers: ModuleType, name: str) -> Any:
    if name in transformers.CONFIG_MAPPING:
        return transformers.CONFIG_MAPPING[name]()
    kind = getattr(transformers, name, None) if name.endswith("Config") else None
    if isinstance(kind, type) and issubclass(kind, transformers.PretrainedConfig):
        return kind()
    hint = did_you_mean(name, transformers.CONFIG_MAPPING.keys())
    raise UnknownModelError(f"unknown model 'hf:{name}'{hint} (a model type such as hf:vit, or hf:ViTConfig)")


def _from_config(transformers: ModuleType, config: Any) -> nn.Module:
    classifiers = transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
    auto = transformers.AutoModelForImageClassification if type(config) in classifiers else transformers.AutoModel
    module: nn.Module = auto.from_config(config)
    return module
