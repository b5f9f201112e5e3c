"""A predictor as one safetensors file: arrays and what names them, nothing that is executed when it is read."""

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
from costmodel.predictor.group_model import TREES_SHARE, GroupModel, none_measured
from costmodel.predictor.neighbours import in_steps
from costmodel.predictor.network import OUTLYING, Array, NeuralNetwork, Steps
from costmodel.predictor.predictor import Predictor
from costmodel.predictor.trees import Trees
from costmodel.records import convert
from costmodel.tensor_file import LARGEST, Tensors, finite_float32, read_tensors, write_tensors

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
"""Least and largest values of tensors, far wider than those of trained ones: within them every predicted time is finite
and positive, as no sum or exponential of them leaves the range of 32-bit numbers."""
LARGEST_OUTPUT = 1e30
"""Bound of all sums in a network, for the same reason."""
Feature = Annotated[str, Meta(pattern=r"^\w{1,100}\Z")]
"""The name of a feature."""
Ceiling = Annotated[float, Meta(ge=1e-3, le=1e15)]
"""Of a device: a rate a microsecond, or the least microseconds of a kernel."""


class DeviceHeader(msgspec.Struct, frozen=True):
    """A device's ceilings in a file, as in `Roofline`."""

    bytes_per_us: Ceiling
    peak: dict[str, Ceiling]
    floor_us: Ceiling
    multiprocessors: Annotated[int, Meta(ge=1, le=1_000_000)]


class GroupHeader(msgspec.Struct, frozen=True):
    """A group's features and numbers in a file, as in `GroupModel`."""

    names: Annotated[tuple[Feature, ...], Meta(min_length=1, max_length=10_000)]
    networks: Annotated[int, Meta(ge=1, le=1000)]
    reach: Annotated[float, Meta(ge=1e-3, le=1e3)]
    far: Annotated[float, Meta(gt=0, le=1e6)]
    trees_share: Annotated[float, Meta(ge=0, le=1)] = TREES_SHARE


class Header(msgspec.Struct, frozen=True):
    """What a predictor's file says about its tensors."""

    groups: dict[str, GroupHeader]
    device: DeviceHeader


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
    header = convert(about, Header)
    tensors: dict[str, Any] = {}
    for key, tensor in loaded.items():
        field = key.rpartition("/")[2]
        whole = WHOLE.get(field)
        within = POSSIBLE.get(field, (-LARGEST, LARGEST))
        tensors[key] = tensor if whole is not None and tensor.dtype == whole else finite_float32(key, tensor, *within)
    device = header.device
    roofline = Roofline(device.bytes_per_us, device.peak, device.floor_us)
    groups = {name: _parse_group(name, group, tensors) for name, group in header.groups.items()}
    return Predictor(groups, roofline, device.multiprocessors)


def _parse_group(name: str, header: GroupHeader, tensors: Mapping[str, Any]) -> GroupModel:
    names = header.names
    networks = tuple(_parse_network(f"{name}/{number}", tensors) for number in range(header.networks))
    memory = tensors[f"{name}/{MEMORY}"]
    model = GroupModel(
        names=names,
        networks=networks,
        memory=memory if memory.dtype == np.int16 else in_steps(memory),
        **{key: getattr(header, key) for key in NUMBERS},
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
        and all(network.weights[0].shape[0] == width and network.weights[-1].shape[1] == 1 for network in networks)
    )
    if not shapes_fit or rows == 0:
        raise ProfileError(f"the tensors of group {name} do not fit together")
    if not max(network.largest(OUTLYING) for network in networks) <= LARGEST_OUTPUT:
        raise ProfileError(f"the networks of group {name} say more than any number of 32 bits")
    return model


def _parse_trees(prefix: str, tensors: Mapping[str, Any], width: int) -> Trees | None:
    if f"{prefix}/{NUMBER}" not in tensors:
        return None
    places = {key: tensors[f"{prefix}/{key}"] for key in PLACES}
    if any(tensor.dtype != PLACES[key] for key, tensor in places.items()):
        raise ProfileError(f"the nodes of {prefix} are not where whole numbers say")
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
