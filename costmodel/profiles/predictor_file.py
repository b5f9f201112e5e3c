"""A predictor as one safetensors file, from which nothing is executed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from costmodel.errors import ProfileError
from costmodel.features import Roofline
from costmodel.predictor.group_model import GroupModel
from costmodel.predictor.network import OUTLYING, Array, NeuralNetwork
from costmodel.predictor.predictor import Base, Predictor
from costmodel.predictor.recall import NOTHING, Recall
from costmodel.predictor.support import REGIME, columns_of
from costmodel.predictor.trees import MOST_TREES, Trees
from costmodel.records import Text, convert
from costmodel.tensor_file import LARGEST, Tensors, finite_float32, read_tensors, write_tensors

COUNTED = ("sample", "regimes", "regime_counts")
"""Fields of a GroupModel that hold integers: measured kernels and regimes in 16-bit steps, and numbers of kernels."""
TENSORS = ("mean", "scale", "residual", "edges", "widths", "sizes", "limits", "workspace")
"""Fields of a GroupModel, float32."""
RECALL = ("hashes", "us", "host_us", "blocks")
"""Fields of a Recall."""
NUMBERS = ("reach", "far", "trees_share")
"""Fields that are one number."""
GROWN = ("trees", "host_trees")
"""Fields that are trees, or None."""
NODES = ("feature", "number")
"""Fields of trees with a number for each node."""
INTEGERS = {
    "sample": np.int16,
    "regimes": np.int16,
    "regime_counts": np.int32,
    "recall/hashes": np.int64,
    **{f"recall/{key}": np.int16 for key in RECALL[1:]},
    **{f"{kind}/feature": np.int8 for kind in GROWN},
    **{f"{kind}/number": np.int16 for kind in GROWN},
}
"""Types of the tensors of a group that hold integers; weights of networks are float16, the others float32."""
POSSIBLE: Mapping[str, tuple[float, float]] = {
    "mean": (-1e6, 1e6),
    "scale": (1e-6, 1e6),
    "residual": (-50.0, 50.0),
    "limits": (-50.0, 50.0),
    "edges": (0.0, 1e12),
    "widths": (0.0, 20.0),
    "workspace": (-1.0, 1e6),
}
"""Least and largest accepted value of a tensor, far wider than the range of trained ones.

Within them no sum or exponential leaves the range of 32-bit floats, so every predicted time is finite and positive."""
SCHEMA = 2
"""Version of the format; 1 held every measured kernel's features."""
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


class TreesHeader(msgspec.Struct, frozen=True):
    """Numbers of trees, as in `Trees`."""

    count: Annotated[int, Meta(ge=1, le=MOST_TREES)]
    unit: Annotated[float, Meta(ge=0, le=1e3)]
    base: Annotated[float, Meta(ge=-1e3, le=1e3)]


class GroupHeader(msgspec.Struct, frozen=True):
    """Features and numbers of a group, as in `GroupModel`."""

    names: Annotated[tuple[Feature, ...], Meta(min_length=1, max_length=10_000)]
    networks: Annotated[int, Meta(ge=0, le=1000)]
    reach: Annotated[float, Meta(ge=1e-3, le=1e3)]
    far: Annotated[float, Meta(gt=0, le=1e6)]
    trees_share: Annotated[float, Meta(ge=0, le=1)]
    trees: TreesHeader | None = None
    host_trees: TreesHeader | None = None


class BaseHeader(msgspec.Struct, frozen=True):
    """Profile whose predictor is the base, and the hash of its file."""

    name: Text
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Header(msgspec.Struct, frozen=True):
    """Metadata of a predictor file."""

    groups: dict[str, GroupHeader]
    device: DeviceHeader
    base: BaseHeader | None = None


BaseOf = Callable[[str, str], Predictor]
"""Name of a profile and hash of its predictor file -> the predictor.

Raises a ProfileError for a profile that is missing or has another predictor."""


def save_predictor(predictor: Predictor, path: Path) -> str:
    """Write the predictor to a safetensors file, whole or not at all, and return the file's SHA-256."""
    tensors: dict[str, npt.NDArray[Any]] = {}
    for name, model in predictor.groups.items():
        tensors |= {f"{name}/{key}": tensor for key, tensor in _group_tensors(model)}
    roofline = predictor.roofline
    device = {
        "bytes_per_us": roofline.bytes_per_us,
        "peak": dict(roofline.peak),
        "floor_us": roofline.floor_us,
        "multiprocessors": predictor.multiprocessors,
    }
    groups = {name: _group_header(model) for name, model in predictor.groups.items()}
    base = predictor.base and {"name": predictor.base.name, "sha256": predictor.base.sha256}
    return write_tensors(path, tensors, {"groups": groups, "device": device, "base": base}, SCHEMA)


def _group_header(model: GroupModel) -> dict[str, object]:
    numbers: dict[str, object] = {key: getattr(model, key) for key in NUMBERS}
    for kind in GROWN:
        if (trees := getattr(model, kind)) is not None:
            numbers[kind] = {"count": trees.count, "unit": trees.unit, "base": trees.base}
    return {"names": model.names, "networks": len(model.networks)} | numbers


def _group_tensors(model: GroupModel) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for key in COUNTED:
        yield key, getattr(model, key)
    for key in TENSORS:
        yield key, getattr(model, key).astype(np.float32)
    for key in RECALL:
        yield f"recall/{key}", getattr(model.recall, key)
    for kind, key in itertools.product(GROWN, NODES):
        if (trees := getattr(model, kind)) is not None:
            yield f"{kind}/{key}", getattr(trees, key)
    for number, network in enumerate(model.networks):
        for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
            yield f"{number}/{layer}/weight", weight.astype(np.float16)
            yield f"{number}/{layer}/bias", bias.astype(np.float32)


def load_predictor(path: Path, sha256: str | None = None, base_of: BaseOf | None = None) -> Predictor:
    """Read a predictor file.

    Args:
        path: the file.
        sha256: expected hash of the file; None for any.
        base_of: finds the base of a predictor that has one; None to refuse such a predictor.

    Raises:
        ProfileError: the file is missing or damaged, or has another hash, schema or shape, or a number out of range; or
            its base is missing or another one.
    """
    return read_tensors(path, "predictor", partial(_parse, base_of=base_of), sha256, SCHEMA)


def _parse(about: Mapping[str, Any], loaded: Tensors, base_of: BaseOf | None) -> Predictor:
    header = convert(about, Header)
    tensors = {key: _checked(key, tensor) for key, tensor in loaded.items()}
    device = header.device
    roofline = Roofline(device.bytes_per_us, device.peak, device.floor_us)
    groups = {name: _parse_group(name, group, tensors) for name, group in header.groups.items()}
    return Predictor(groups, roofline, device.multiprocessors, _parse_base(header.base, base_of))


def _parse_base(header: BaseHeader | None, base_of: BaseOf | None) -> Base | None:
    if header is None:
        return None
    if base_of is None:
        raise ProfileError(f"its base may not have the base {header.name!r}; train it again with --base none")
    return Base(header.name, header.sha256, base_of(header.name, header.sha256))


def _checked(key: str, tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A tensor of the type and range that its name asks for; weights as float32."""
    field = key.partition("/")[2]
    if field in INTEGERS:
        if tensor.dtype != INTEGERS[field]:
            raise ProfileError(f"tensor {key} is {tensor.dtype}, not {np.dtype(INTEGERS[field])}")
        return tensor
    if tensor.dtype == np.float16:
        tensor = tensor.astype(np.float32)
    return finite_float32(key, tensor, *POSSIBLE.get(field, (-LARGEST, LARGEST)))


def _parse_group(name: str, header: GroupHeader, tensors: Mapping[str, Any]) -> GroupModel:
    names = header.names
    networks = tuple(_parse_network(f"{name}/{number}", tensors) for number in range(header.networks))
    model = GroupModel(
        names=names,
        networks=networks,
        **{key: getattr(header, key) for key in NUMBERS},
        trees=_parse_trees(f"{name}/trees", header.trees, tensors, len(names)),
        host_trees=_parse_trees(f"{name}/host_trees", header.host_trees, tensors, len(names)),
        recall=_parse_recall(name, tensors),
        **{key: tensors[f"{name}/{key}"] for key in (*COUNTED, *TENSORS)},
    )
    width = len(names)
    rows = len(model.residual)
    shapes_fit = (
        model.mean.shape == model.scale.shape == (width,)
        and model.sample.shape == (rows, width)
        and model.residual.ndim == model.edges.ndim == model.widths.ndim == 1
        and len(model.widths) == len(model.edges) + 1
        and model.sizes.ndim == 1
        and model.limits.shape == (len(model.sizes) + 1, 2)
        and model.workspace.shape in ((0,), (rows,))
        and model.regimes.shape == (len(model.regime_counts), len(REGIME))
        and (len(model.regimes) == 0 or bool(columns_of(names)))
        and all(network.weights[0].shape[0] == width and network.weights[-1].shape[1] == 1 for network in networks)
    )
    if not shapes_fit or rows == 0:
        raise ProfileError(f"the tensors of group {name} do not fit together")
    if not networks and model.trees is None:
        raise ProfileError(f"group {name} has neither networks nor trees")
    if not max((network.largest(OUTLYING) for network in networks), default=0.0) <= LARGEST_OUTPUT:
        raise ProfileError(f"the networks of group {name} exceed the range of 32-bit floats")
    return model


def _parse_recall(name: str, tensors: Mapping[str, Any]) -> Recall:
    recall = Recall(*(tensors[f"{name}/recall/{key}"] for key in RECALL))
    if not recall.hashes.ndim == 1 or not recall.hashes.shape == recall.us.shape:
        raise ProfileError(f"the recalled kernels of group {name} do not fit together")
    if any(some.shape not in ((0,), recall.us.shape) for some in (recall.host_us, recall.blocks)):
        raise ProfileError(f"the recalled kernels of group {name} do not fit together")
    if not (recall.hashes[1:] > recall.hashes[:-1]).all() or (recall.us == NOTHING).any():
        raise ProfileError(f"the recalled kernels of group {name} are not in order, or lack a time")
    return recall


def _parse_trees(prefix: str, header: TreesHeader | None, tensors: Mapping[str, Any], width: int) -> Trees | None:
    if header is None:
        return None
    nodes = {key: tensors[f"{prefix}/{key}"] for key in NODES}
    if any(tensor.ndim != 1 for tensor in nodes.values()):
        raise ProfileError(f"the nodes of {prefix} do not fit together")
    return Trees(header.count, **nodes, unit=header.unit, base=header.base).verify(width)


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
