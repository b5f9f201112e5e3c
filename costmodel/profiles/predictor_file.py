"""A predictor as one safetensors file, from which nothing is executed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from costmodel.errors import ProfileError
from costmodel.features import Roofline
from costmodel.predictor.group_model import GroupModel, none_measured
from costmodel.predictor.network import OUTLYING, Array, NeuralNetwork, Steps
from costmodel.predictor.predictor import Predictor
from costmodel.predictor.trees import Trees
from costmodel.records import convert
from costmodel.tensor_file import LARGEST, Tensors, finite_float32, read_tensors, write_tensors

MEMORY = "memory"
"""Field of a GroupModel with the measured kernels, in 16-bit steps."""
TENSORS = ("mean", "scale", "places", "residual", "edges", "widths", "sizes", "limits")
"""Fields of a GroupModel that every group has, float32."""
PER_KERNEL = ("workspace", "host_us", "known")
"""Fields with a number for each measured kernel, float32; absent where it was not measured."""
NUMBERS = ("reach", "far", "trees_share")
"""Fields that are one number."""
GROWN = ("trees", "host_trees")
"""Fields that are trees, or None."""
NUMBER, PLACES = "number", {"feature": np.int8, "right": np.int16, "roots": np.int32}
"""Fields of trees: one of floats, and integers by name with their types."""
INTEGERS = {MEMORY: np.int16, **PLACES}
"""Types of the tensors that hold integers."""
POSSIBLE: Mapping[str, tuple[float, float]] = {
    "mean": (-1e6, 1e6),
    "scale": (1e-6, 1e6),
    "residual": (-50.0, 50.0),
    "known": (-50.0, 50.0),
    "limits": (-50.0, 50.0),
    "edges": (0.0, 1e12),
    "widths": (0.0, 20.0),
    "workspace": (-1.0, 1e6),
    "host_us": (0.0, 1e6),
    NUMBER: (-1e6, 1e6),
}
"""Least and largest accepted value of a tensor, far wider than the range of trained ones.

Within them no sum or exponential leaves the range of 32-bit floats, so every predicted time is finite and positive."""
LARGEST_OUTPUT = 1e30
"""Largest accepted bound on a network's activations, for the same reason."""
Feature = Annotated[str, Meta(pattern=r"^\w{1,100}\Z")]
"""Name of a feature."""
Ceiling = Annotated[float, Meta(ge=1e-3, le=1e15)]
"""Ceiling of a device: a rate per microsecond, or the shortest kernel in microseconds."""


class DeviceHeader(msgspec.Struct, frozen=True):
    """Ceilings of a device, as in `Roofline`, and its number of multiprocessors."""

    bytes_per_us: Ceiling
    peak: dict[str, Ceiling]
    floor_us: Ceiling
    multiprocessors: Annotated[int, Meta(ge=1, le=1_000_000)]


class GroupHeader(msgspec.Struct, frozen=True):
    """Features and numbers of a group, as in `GroupModel`."""

    names: Annotated[tuple[Feature, ...], Meta(min_length=1, max_length=10_000)]
    networks: Annotated[int, Meta(ge=1, le=1000)]
    reach: Annotated[float, Meta(ge=1e-3, le=1e3)]
    far: Annotated[float, Meta(gt=0, le=1e6)]
    trees_share: Annotated[float, Meta(ge=0, le=1)]


class Header(msgspec.Struct, frozen=True):
    """Metadata of a predictor file."""

    groups: dict[str, GroupHeader]
    device: DeviceHeader


def save_predictor(predictor: Predictor, path: Path) -> str:
    """Write the predictor to a safetensors file, whole or not at all, and return the file's SHA-256."""
    tensors: dict[str, Array | Steps] = {}
    about: dict[str, object] = {}
    for name, model in predictor.groups.items():
        about[name] = {"names": model.names, "networks": len(model.networks)} | {
            key: getattr(model, key) for key in NUMBERS
        }
        tensors[f"{name}/{MEMORY}"] = model.memory
        for key in TENSORS:
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
    """Read a predictor file.

    Raises:
        ProfileError: the file is missing or damaged, or has another hash, schema or shape, or a number out of range.
    """
    return read_tensors(path, "predictor", _parse, sha256)


def _parse(about: Mapping[str, Any], loaded: Tensors) -> Predictor:
    header = convert(about, Header)
    tensors: dict[str, Any] = {}
    for key, tensor in loaded.items():
        field = key.rpartition("/")[2]
        if field in INTEGERS and tensor.dtype == INTEGERS[field]:
            tensors[key] = tensor
        else:
            tensors[key] = finite_float32(key, tensor, *POSSIBLE.get(field, (-LARGEST, LARGEST)))
    device = header.device
    roofline = Roofline(device.bytes_per_us, device.peak, device.floor_us)
    groups = {name: _parse_group(name, group, tensors) for name, group in header.groups.items()}
    return Predictor(groups, roofline, device.multiprocessors)


def _parse_group(name: str, header: GroupHeader, tensors: Mapping[str, Any]) -> GroupModel:
    names = header.names
    networks = tuple(_parse_network(f"{name}/{number}", tensors) for number in range(header.networks))
    model = GroupModel(
        names=names,
        networks=networks,
        memory=tensors[f"{name}/{MEMORY}"],
        **{key: getattr(header, key) for key in NUMBERS},
        trees=_parse_trees(f"{name}/trees", tensors, len(names)),
        host_trees=_parse_trees(f"{name}/host_trees", tensors, len(names)),
        **{key: tensors.get(f"{name}/{key}", none_measured()) for key in PER_KERNEL},
        **{key: tensors[f"{name}/{key}"] for key in TENSORS},
    )
    width = len(names)
    rows = len(model.residual)
    shapes_fit = (
        model.mean.shape == model.scale.shape == (width,)
        and model.memory.shape == (rows, width)
        and model.memory.dtype == INTEGERS[MEMORY]
        and model.places.shape == (rows,)
        and model.residual.ndim == model.edges.ndim == model.widths.ndim == 1
        and len(model.widths) == len(model.edges) + 1
        and model.sizes.ndim == 1
        and model.limits.shape == (len(model.sizes) + 1, 2)
        and all(getattr(model, key).shape in ((0,), (rows,)) for key in PER_KERNEL)
        and all(network.weights[0].shape[0] == width and network.weights[-1].shape[1] == 1 for network in networks)
    )
    if not shapes_fit or rows == 0:
        raise ProfileError(f"the tensors of group {name} do not fit together")
    if not max(network.largest(OUTLYING) for network in networks) <= LARGEST_OUTPUT:
        raise ProfileError(f"the networks of group {name} exceed the range of 32-bit floats")
    return model


def _parse_trees(prefix: str, tensors: Mapping[str, Any], width: int) -> Trees | None:
    if f"{prefix}/{NUMBER}" not in tensors:
        return None
    places = {key: tensors[f"{prefix}/{key}"] for key in PLACES}
    if any(tensor.dtype != PLACES[key] for key, tensor in places.items()):
        raise ProfileError(f"the nodes of {prefix} are not listed by integers of the right types")
    return Trees(number=tensors[f"{prefix}/{NUMBER}"], **places).verify(width)


def _parse_network(prefix: str, tensors: Mapping[str, Array]) -> NeuralNetwork:
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
    return NeuralNetwork(tuple(weights), tuple(biases))
