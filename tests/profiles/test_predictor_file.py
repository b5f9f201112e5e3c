"""Predictors as files: the same estimates again, and files that are refused."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from costmodel.errors import ProfileError
from costmodel.predictor.network import Array
from costmodel.predictor.predictor import Base, Predictor
from costmodel.profiles.predictor_file import SCHEMA, load_predictor, save_predictor
from costmodel.tensor_file import read_tensors
from tests.support.predictors import KERNELS, MEASURED_US, POSITIONS, one_leaf, recall_of, small_predictor


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return small_predictor()


@pytest.fixture
def saved(predictor: Predictor, tmp_path: Path) -> Path:
    path = tmp_path / "predictor.safetensors"
    save_predictor(predictor, path)
    return path


def test_a_file_gives_the_same_estimates(predictor: Predictor, tmp_path: Path):
    path = tmp_path / "p.safetensors"
    sha256 = save_predictor(predictor, path)
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    again = load_predictor(path, sha256)
    assert again.predict(KERNELS, POSITIONS) == predictor.predict(KERNELS, POSITIONS)
    assert again.roofline == predictor.roofline
    assert [item.name for item in tmp_path.iterdir()] == ["p.safetensors"]


def with_trees(predictor: Predictor) -> Predictor:
    recall = recall_of(MEASURED_US, np.full(8, 7.0, np.float32))
    model = replace(predictor.groups["conv"], recall=recall, trees=one_leaf(1.0), host_trees=one_leaf(3.0))
    return replace(predictor, groups={"conv": model})


def test_a_file_holds_the_trees(predictor: Predictor, tmp_path: Path):
    grown, path = with_trees(predictor), tmp_path / "p.safetensors"
    save_predictor(grown, path)
    again, asked = load_predictor(path), grown.groups["conv"].measured + np.float32(0.5)
    assert again.groups["conv"].host_us(asked) == pytest.approx([math.exp(3.0)] * 8)
    expected = again.groups["conv"].expected(asked)
    np.testing.assert_allclose(expected, grown.groups["conv"].expected(asked), rtol=1e-3, atol=1e-3)
    assert (again.groups["conv"].expected(asked) != predictor.groups["conv"].expected(asked)).all()
    changed(path, _set("conv/host_trees/feature", np.zeros(1, np.int8)))
    refused(path, "the nodes of the trees do not fit together")
    changed(path, _set("conv/host_trees/number", np.zeros(1, np.float32)))
    refused(path, "tensor conv/host_trees/number is float32, not int16")
    changed(path, _drop("conv/host_trees/number"))
    refused(path, "not a predictor file")


def test_a_file_holds_weights_to_a_two_thousandth(predictor: Predictor, tmp_path: Path):
    path = tmp_path / "p.safetensors"
    save_predictor(predictor, path)
    for before, after in zip(
        predictor.groups["conv"].networks, load_predictor(path).groups["conv"].networks, strict=True
    ):
        for one, other in zip(before.weights, after.weights, strict=True):
            np.testing.assert_allclose(other, one, rtol=2**-11, atol=1e-7)


class TestBase:
    """Predictors of which another profile's is the base."""

    SHA256 = "a" * 64

    def saved(self, predictor: Predictor, path: Path) -> Path:
        based = replace(predictor, base=Base("other", self.SHA256, predictor))
        save_predictor(based, path)
        return path

    def test_the_base_is_found_by_name_and_hash(self, predictor: Predictor, tmp_path: Path):
        asked = []

        def base_of(name: str, sha256: str) -> Predictor:
            asked.append((name, sha256))
            return predictor

        found = load_predictor(self.saved(predictor, tmp_path / "p.safetensors"), base_of=base_of)
        assert asked == [("other", self.SHA256)]
        assert found.base is not None
        assert found.base.predictor is predictor

    def test_a_base_with_a_base_is_refused(self, predictor: Predictor, tmp_path: Path):
        path = self.saved(predictor, tmp_path / "p.safetensors")
        refused(path, "its base may not have the base 'other'; train it again with --base none")

    def test_a_base_that_is_missing_is_refused(self, predictor: Predictor, tmp_path: Path):
        def missing(name: str, sha256: str) -> Predictor:
            raise ProfileError(f"its base {name!r} is missing")

        path = self.saved(predictor, tmp_path / "p.safetensors")
        with pytest.raises(ProfileError, match=r"p\.safetensors: its base 'other' is missing"):
            load_predictor(path, base_of=missing)


def refused(path: Path, match: str, sha256: str | None = None) -> None:
    with pytest.raises(ProfileError, match=match) as caught:
        load_predictor(path, sha256)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path):
    refused(tmp_path / "none.safetensors", "cannot be read")


def test_another_hash_is_refused(saved: Path):
    refused(saved, "SHA-256", "0" * 64)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_file_is_refused(saved: Path, share: float):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(share * len(data))])
    refused(saved, "not a predictor file: its header is damaged|the offsets of its tensors")


class _Payload:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


def test_a_pickle_in_disguise_is_refused_and_not_executed(tmp_path: Path):
    path, trace = tmp_path / "predictor.safetensors", tmp_path / "executed"
    path.write_bytes(pickle.dumps(_Payload(f"touch {trace}")))
    refused(path, "not a predictor file")
    assert not trace.exists()


Change = Callable[[dict[str, Array], dict[str, str]], None]


def changed(path: Path, change: Change) -> None:
    """Rewrites the file with other tensors or metadata."""
    with safe_open(path, "numpy") as file:
        metadata = dict(file.metadata())
    tensors = load_file(path)
    change(tensors, metadata)
    save_file(tensors, path, metadata)


def _set(name: str, tensor: Array) -> Change:
    return lambda tensors, _: tensors.__setitem__(name, tensor)


def _drop(name: str) -> Change:
    return lambda tensors, _: tensors.__delitem__(name)


def _say(name: str, text: str) -> Change:
    return lambda _, metadata: metadata.__setitem__(name, text)


def _nan(tensors: dict[str, Array], _: dict[str, str]) -> None:
    tensors["conv/1/0/weight"][0, 0] = np.nan


def _infinite_reach(_: dict[str, Array], metadata: dict[str, str]) -> None:
    about = json.loads(metadata["groups"])
    about["conv"]["reach"] = float("inf")
    metadata["groups"] = json.dumps(about)


def _without_share(_: dict[str, Array], metadata: dict[str, str]) -> None:
    about = json.loads(metadata["groups"])
    del about["conv"]["trees_share"]
    metadata["groups"] = json.dumps(about)


def _floats(tensors: dict[str, Array], _: dict[str, str]) -> None:
    tensors["conv/sample"] = np.zeros(tensors["conv/sample"].shape, np.float32)


def _all_by_trees_and_more(_: dict[str, Array], metadata: dict[str, str]) -> None:
    about = json.loads(metadata["groups"])
    about["conv"]["trees_share"] = 1.01
    metadata["groups"] = json.dumps(about)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param(_nan, "not finite", id="nan"),
        pytest.param(_set("conv/mean", np.zeros(3)), "not finite float32", id="float64"),
        pytest.param(_say("schema", "99"), "schema '99'", id="schema"),
        pytest.param(_say("groups", "{"), "not a predictor file", id="metadata"),
        pytest.param(_infinite_reach, "Infinity is not a JSON number", id="infinite-reach"),
        pytest.param(_all_by_trees_and_more, "trees_share: expected float <= 1", id="trees-share-above-1"),
        pytest.param(
            _say("device", '{"bytes_per_us": NaN, "peak": {}, "floor_us": 1, "multiprocessors": 1}'),
            "NaN is not a JSON number",
            id="ceiling",
        ),
        pytest.param(_without_share, "lacks|missing required field trees_share", id="trees-share-missing"),
        pytest.param(_drop("conv/mean"), "not a predictor file", id="tensor-missing"),
        pytest.param(_drop("conv/limits"), "not a predictor file", id="limits-missing"),
        pytest.param(_say("schema", "1"), "schema '1', this version reads 2; train it again", id="older-schema"),
        pytest.param(_drop("conv/recall/us"), "not a predictor file", id="recall-missing"),
        pytest.param(_set("conv/recall/us", np.zeros(3, np.int16)), "do not fit together", id="recall"),
        pytest.param(_set("conv/recall/us", np.full(8, -(2**15), np.int16)), "lack a time", id="recall-of-nothing"),
        pytest.param(_set("conv/recall/hashes", np.zeros(8, np.int64)), "not in order", id="recall-in-disorder"),
        pytest.param(_floats, "tensor conv/sample is float32, not int16", id="sample-of-floats"),
        pytest.param(_drop("conv/0/0/weight"), "do not fit together", id="network-missing"),
        pytest.param(_set("conv/0/1/weight", np.zeros((5, 1), np.float32)), "layers of network", id="layers"),
        pytest.param(_set("conv/0/0/bias", np.zeros(1, np.float32)), "layers of network", id="bias"),
        pytest.param(_set("conv/sample", np.zeros((8, 2), np.int16)), "do not fit together", id="sample"),
        pytest.param(_set("conv/recall/host_us", np.ones(3, np.int16)), "do not fit together", id="host"),
        pytest.param(_set("conv/widths", np.zeros(9, np.float32)), "do not fit together", id="widths"),
        pytest.param(_set("conv/sizes", np.zeros(2, np.float32)), "do not fit together", id="sizes"),
        pytest.param(_set("conv/limits", np.zeros((1, 3), np.float32)), "do not fit together", id="limits"),
        pytest.param(_set("conv/residual", np.zeros((0,), np.float32)), "do not fit together", id="no-sample"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(saved: Path, change: Change, match: str):
    changed(saved, change)
    refused(saved, match)


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


@pytest.mark.parametrize(
    "change",
    [
        {"data_offsets": [0, 1 << 40]},
        {"data_offsets": [-8, 24]},
        {"shape": [-1]},
        {"shape": [1 << 40]},
        {"dtype": "F32", "shape": [8], "data_offsets": [1 << 30, (1 << 30) + 32]},
        {"dtype": "BOOL"},
        {"dtype": ["F32"]},
        {"more": 1},
    ],
)
def test_tensors_that_lie_outside_of_the_file_are_refused(saved: Path, change: dict[str, Any]):
    header, rest = header_of(saved.read_bytes())
    header["conv/residual"] |= change
    text = json.dumps(header).encode()
    saved.write_bytes(len(text).to_bytes(8, "little") + text + rest)
    with pytest.raises(ProfileError, match=r"not a predictor file: .*|do not fit their shapes"):
        load_predictor(saved)


def test_tensors_are_those_that_the_library_of_the_format_reads(saved: Path):
    found = read_tensors(saved, "predictor", lambda _, tensors: tensors, schema=SCHEMA)
    expected = load_file(saved)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert np.array_equal(found[name], tensor)


def test_a_file_holds_the_weight_of_the_trees(predictor: Predictor, tmp_path: Path):
    path = tmp_path / "p.safetensors"
    model = replace(with_trees(predictor).groups["conv"], trees_share=0.7)
    save_predictor(replace(predictor, groups={"conv": model}), path)
    assert load_predictor(path).groups["conv"].trees_share == 0.7
