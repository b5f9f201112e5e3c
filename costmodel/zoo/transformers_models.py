"""Vision models of transformers (an optional extra), from default configurations, with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import nn

from costmodel.errors import RequestError, UnknownModelError, own_words
from costmodel.zoo.build import build
from costmodel.zoo.request import DEFAULT_SIZE, Request, did_you_mean
from costmodel.zoo.torchvision_import import load_torchvision

_IMAGES = "pixel_values"
MOST_TOKENS = 512
"""Limit of tokens for a text model: prompts about an image are short."""

_TASKS = {
    "IMAGE_CLASSIFICATION": "AutoModelForImageClassification",
    "VIDEO_CLASSIFICATION": "AutoModelForVideoClassification",
    "OBJECT_DETECTION": "AutoModelForObjectDetection",
    "UNIVERSAL_SEGMENTATION": "AutoModelForUniversalSegmentation",
    "INSTANCE_SEGMENTATION": "AutoModelForInstanceSegmentation",
    "SEMANTIC_SEGMENTATION": "AutoModelForSemanticSegmentation",
    "DEPTH_ESTIMATION": "AutoModelForDepthEstimation",
    "ZERO_SHOT_OBJECT_DETECTION": "AutoModelForZeroShotObjectDetection",
    "ZERO_SHOT_IMAGE_CLASSIFICATION": "AutoModelForZeroShotImageClassification",
    "MASKED_IMAGE_MODELING": "AutoModelForMaskedImageModeling",
    "MASK_GENERATION": "AutoModelForMaskGeneration",
    "KEYPOINT_DETECTION": "AutoModelForKeypointDetection",
    "BACKBONE": "AutoBackbone",
}
"""Classes that build models, by task, in order of preference."""


def load_transformers_model(name: str, request: Request) -> tuple[nn.Module, dict[str, Any]]:
    """Load the model of a configuration for the first supported task, else its bare model; nothing is downloaded.

    Inputs are passed by keyword: images, or a clip if the configuration has a number of frames; and token ids, up to
    the maximum of the text model, if there is one.

    Args:
        name: a model type (`vit`) or a configuration class (`ViTConfig`).
        request: batch size, image size.

    Raises:
        UnknownModelError: unknown configuration; similar names are suggested.
        RequestError: transformers is not installed, or the model does not take images or cannot be built.
    """
    load_torchvision()  # transformers imports it, and may find it broken
    try:
        import transformers
    except ImportError as error:
        raise RequestError(f"hf:{name} needs transformers: pip install 'costmodel[hf]' ({error})") from error
    config = _config(transformers, name)
    _set_up(config, request)
    try:
        module: nn.Module = build(lambda: _from_config(transformers, config))
    except Exception as error:  # constructors in transformers may raise any exception
        raise RequestError(f"hf:{name} cannot be built: {own_words(error)}") from error
    taken = inspect.signature(module.forward).parameters
    if _IMAGES not in taken:
        first = next(iter(taken), "nothing")
        raise RequestError(f"hf:{name} takes {first}, not images; costmodel predicts vision models")
    return module, _inputs(config, request, taken)


def vision_model_types() -> tuple[str, ...]:
    """Model types of transformers with a vision task, and types of bare vision models."""
    load_torchvision()
    import transformers

    mappings = [getattr(transformers, f"MODEL_FOR_{task}_MAPPING", {}) for task in _TASKS]
    kinds = {kind.model_type for mapping in mappings for kind in mapping}
    bare = {kind.model_type for kind in transformers.MODEL_MAPPING}
    return tuple(sorted(kinds | {name for name in bare if name.endswith("_vision_model")}))


def _set_up(config: Any, request: Request) -> None:
    """Configure no pretrained backbone, no search for padding in token ids, and the requested image size."""
    for part in (config, getattr(config, "text_config", None)):
        if part is not None and hasattr(part, "pad_token_id"):
            part.pad_token_id = None
    config.architectures = config.architectures or []
    if hasattr(config, "use_pretrained_backbone"):
        config.use_pretrained_backbone = False
    if request.img_size is not None and hasattr(config, "image_size"):
        config.image_size = request.img_size


def _inputs(config: Any, request: Request, taken: Mapping[str, object]) -> dict[str, Any]:
    vision = getattr(config, "vision_config", config)
    backbone = getattr(vision, "backbone_config", None)
    size = getattr(vision, "image_size", None) or getattr(backbone, "image_size", None) or DEFAULT_SIZE
    channels = getattr(vision, "num_channels", None) or getattr(vision, "in_channels", None) or 3
    image = request.image(int(size[-1] if isinstance(size, tuple | list) else size), int(channels))
    frames = getattr(vision, "num_frames", None) or getattr(vision, "frames_per_clip", None)
    found = {_IMAGES: image.unsqueeze(1).repeat(1, frames, 1, 1, 1) if frames else image}
    text = getattr(config, "text_config", None)
    length = getattr(text, "max_position_embeddings", None)
    if "input_ids" in taken and length:
        batch = image.shape[0]
        found["input_ids"] = torch.zeros(batch, min(int(length), MOST_TOKENS), dtype=torch.int64, device="meta")
    return found


def _config(transformers: ModuleType, name: str) -> Any:
    if name in transformers.CONFIG_MAPPING:
        return transformers.CONFIG_MAPPING[name]()
    kind = getattr(transformers, name, None) if name.endswith("Config") else None
    if isinstance(kind, type) and issubclass(kind, transformers.PretrainedConfig):
        return kind()
    hint = did_you_mean(name, transformers.CONFIG_MAPPING.keys())
    raise UnknownModelError(f"unknown model 'hf:{name}'{hint} (a model type such as hf:vit, or hf:ViTConfig)")


def _from_config(transformers: ModuleType, config: Any) -> nn.Module:
    for task, loader in _TASKS.items():
        if type(config) in getattr(transformers, f"MODEL_FOR_{task}_MAPPING", {}):
            module: nn.Module = getattr(transformers, loader).from_config(config)
            return module
    bare: nn.Module = transformers.AutoModel.from_config(config)
    return bare
