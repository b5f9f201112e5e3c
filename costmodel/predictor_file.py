"""A predictor as one safetensors file: arrays and what names them, nothing that is executed when it is read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.errors import ProfileError
from costmodel.features import Roofline
from costmodel.predictor import TREES_SHARE, Array, GroupModel, Network, Predictor, Steps, in_steps, none_measured
from costmodel.tensors import Tensors, finite_float32, read_tensors, write_tensors
from costmodel.trees import Trees

MEMORY = "memory"
"""The measured kernels, in 16-bit steps; in files of earlier versions scaled features, as numbers."""
TENSORS = ("mean", "scale", "residual", "edges", "widths")
"""The other fields of a GroupModel that every predictor file has, all float32."""
LATER_TENSORS = ("sizes", "limits")
"""Those that files of earlier versions lack."""
PER_KERNEL = ("workspace", "host_us", "known", "places")
"""Those of groups in which it was measured: a number for each measured kernel."""
NUMBERS = ("reach", "far", "trees_share")
"""A number for each group; the last is not in files of earlier versions."""
GROWN = ("trees", "host_trees")
"""The fields that are trees, or None."""
NUMBER, PLACES = "number", {"feature": np.int8, "right": np.int16, "roots": np.int32}
"""Their fields."""
WHOLE = {MEMORY: np.int16, **PLACES}
"""Tensors that may be of whole numbers, and of which."""


def save_predictor(predictor: Predictor, path: Path) -> str:
    """Writes the predictor as one safetensors file, through a temporary name; the file's SHA-256."""
    tensors: dict[str, Array | Steps] = {}
    about: dict[str, object] = {}
    for name, model in predictor.groups.items():
        about[name] = {"names": model.names, "networks": len(model.networks)} | {
            key: getattr(model, key) for key in NUMBERS
        }
        tensors[f"{name}/{MEMORY}"] = model.memory
        for key in (*TENSORS, *LATER_TENSORS):
            tensors[f"{name}/{key}"] = getattr(model, key).astype(np.float32)
        for key in PER_KERNEL:
            if len(getattr(model, key)):
                tensors[f"{name}/{key}"] = getattr(model, key).astype(np.float32)
        for kind, key in itertools.product(GROWN, (NUMBER, *PLACES)):
            if (grown := getattr(model, kind)) is not None:
                tensors[f"{name}/{kind}/{key}"] = getattr(grown, key)
        for number, network in enumerate(model.networks):
            for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
                tensors[f"{name}/{number}/{layer}/weight"] = weight.astype(np.float32)
                tensors[f"{name}/{number}/{layer}/bias"] = bias.astype(np.float32)
    roofline = predictor.roofline
    device = {
        "bytes_per_us": roofline.bytes_per_us,
        "peak": dict(roofline.peak),
        "floor_us": roofline.floor_us,
        "multiprocessors": predictor.multiprocessors,
    }
    return write_tensors(path, tensors, {"groups": about, "device": device})


def load_predictor(path: Path, sha256: str | None = None) -> Predictor:
    """Reads a predictor file; nothing in it is executed.

    Raises:
        ProfileError: the file is missing, damaged, of another hash, schema or shape, or holds a number that is none.
    """
    return read_tensors(path, "predictor", _parse, sha256)


def _parse(about: Mapping[str, Any], loaded: Tensors) -> Predictor:
    tensors: dict[str, Any] = {}
    for key, tensor in loaded.items():
        whole = WHOLE.get(key.rpartition("/")[2])
        tensors[key] = tensor if whole is not None and tensor.dtype == whole else finite_float32(key, tensor)
    device = about["device"]
    peak = {str(kind): float(rate) for kind, rate in device["peak"].items()}
    roofline = Roofline(float(device["bytes_per_us"]), peak, float(device["floor_us"]))
    for rate in (roofline.bytes_per_us, roofline.floor_us, *peak.values()):
        if not (math.isfinite(rate) and rate > 0):
            raise ProfileError("a ceiling of the device is no positive number")
    groups = {name: _parse_group(name, entry, tensors) for name, entry in about["groups"].items()}
    return Predictor(groups, roofline, int(device["multiprocessors"]))


def _parse_group(name: str, about: Mapping[str, Any], tensors: Mapping[str, Any]) -> GroupModel:
    names = tuple(str(item) for item in about["names"])
    networks = tuple(_parse_network(f"{name}/{number}", tensors) for number in range(int(about["networks"])))
    memory = tensors[f"{name}/{MEMORY}"]
    model = GroupModel(
        names=names,
        networks=networks,
        memory=memory if memory.dtype == np.int16 else in_steps(memory),
        reach=float(about["reach"]),
        far=float(about["far"]),
        trees_share=float(about.get("trees_share", TREES_SHARE)),
        trees=_parse_trees(f"{name}/trees", tensors, len(names)),
        host_trees=_parse_trees(f"{name}/host_trees", tensors, len(names)),
        **{key: tensors.get(f"{name}/{key}", none_measured()) for key in PER_KERNEL},
        **{key: tensors[f"{name}/{key}"] for key in TENSORS},
        **{key: tensors[f"{name}/{key}"] for key in LATER_TENSORS if f"{name}/{key}" in tensors},
    )
    width = len(names)
    rows = len(model.residual)
    shapes_fit = (
        model.mean.shape == model.scale.shape == (width,)
        and model.memory.shape == (rows, width)
        and model.residual.ndim == model.edges.ndim == model.widths.ndim == 1
        and len(model.widths) == len(model.edges) + 1
        and model.sizes.ndim == 1
        and model.limits.shape == (len(model.sizes) + 1, 2)
        and all(getattr(model, key).shape in ((0,), (rows,)) for key in PER_KERNEL)
        and bool(networks)
        and all(network.weights[0].shape[0] == width and network.weights[-1].shape[1] == 1 for network in networks)
    )
    numbers_fit = model.reach > 0 and model.far > 0 and math.isfinite(model.reach + model.far)
    numbers_fit &= 0 <= model.trees_share <= 1 and bool((model.host_us >= 0).all())
    if not shapes_fit or not numbers_fit or rows == 0 or (model.scale <= 0).any():
        raise ProfileError(f"the tensors of group {name} do not fit together")
    return model


def _parse_trees(prefix: str, tensors: Mapping[str, Any], width: int) -> Trees | None:
    if f"{prefix}/{NUMBER}" not in tensors:
        return None
    places = {key: tensors[f"{prefix}/{key}"] for key in PLACES}
    if any(tensor.dtype != PLACES[key] for key, tensor in places.items()):
        raise ProfileError(f"the nodes of {prefix} are not where whole numbers say")
    return Trees(number=tensors[f"{prefix}/{NUMBER}"], **places).verify(width)


def _parse_network(prefix: str, tensors: Mapping[str, Array]) -> Network:
    weights: list[Array] = []
    biases: list[Array] = []
    while f"{prefix}/{len(weights)}/weight" in tensors:
        layer = len(weights)
        weights.append(tensors[f"{prefix}/{layer}/weight"])
        biases.append(tensors[f"{prefix}/{layer}/bias"])
    widths_fit = all(before.shape[1] == after.shape[0] for before, after in itertools.pairwise(weights))
    biases_fit = all(bias.shape == weight.shape[1:] for weight, bias in zip(weights, biases, strict=True))
    if not weights or not widths_fit or not biases_fit:
        raise ProfileError(f"the layers of network {prefix} do not fit together")
    return Network(tuple(weights), tuple(biases))
