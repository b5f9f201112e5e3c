"""Files of predictors with hostile headers or numbers: refused in one line, or every estimate is possible."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from costmodel.errors import ProfileError
from costmodel.predictor.predictor import Predictor
from costmodel.profiles.predictor_file import load_predictor, save_predictor
from tests.support.hostile_json import SETTINGS, mutated, refused_or
from tests.support.predictors import KERNELS, MEASURED_US, POSITIONS, conv, one_leaf, recall_of, small_predictor


def metadata_of(path: Path) -> dict[str, str]:
    with safe_open(path, "numpy") as file:
        return dict(file.metadata())


def grown(predictor: Predictor) -> Predictor:
    """The predictor with trees, host times and workspaces too."""
    trees_too = replace(
        predictor.groups["conv"],
        trees=one_leaf(1.0),
        host_trees=one_leaf(3.0),
        recall=recall_of(MEASURED_US, np.full(8, 7.0, np.float32), np.full(8, 1024.0, np.float32)),
        workspace=np.ones(8, np.float32),
    )
    return replace(predictor, groups={"conv": trees_too})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predictor") / "good.safetensors"
    save_predictor(grown(small_predictor()), path)
    return path


def check_estimates(path: Path) -> None:
    found = refused_or(lambda: load_predictor(path), ProfileError)
    if found is None:
        return
    kernels = [*KERNELS, conv(512, 56)]  # some that it has measured, and one that is unlike them
    for estimate in refused_or(lambda: found.predict(kernels, [*POSITIONS, 0.0]), ProfileError) or ():
        assert 0 < estimate.low_us <= estimate.us <= estimate.high_us < math.inf
        assert 0 <= estimate.host_us < math.inf
    assert min(refused_or(lambda: found.workspace_bytes(KERNELS), ProfileError) or [0]) >= 0


@SETTINGS
@given(data=st.data())
def test_a_predictor_whose_header_has_a_hostile_value_is_refused_or_predicts_possible_times(
    saved: Path, data: st.DataObject
):
    metadata = metadata_of(saved)
    part = data.draw(st.sampled_from(["groups", "device"]))
    metadata[part] = data.draw(mutated(json.loads(metadata[part])))
    path = saved.with_name("header.safetensors")
    save_file(load_file(saved), path, metadata)
    check_estimates(path)


NUMBERS = (-3e38, -1e9, -1.0, -1e-30, 0.0, 1e-38, 1e-6, 1e4, 1e9, 3e38, math.inf, -math.inf, math.nan)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_predictor_whose_tensors_hold_a_hostile_number_is_refused_or_predicts_possible_times(
    saved: Path, data: st.DataObject
):
    tensors = load_file(saved)
    name = data.draw(st.sampled_from(sorted(name for name in tensors if tensors[name].size)))
    tensor = tensors[name].copy()
    limits = np.iinfo(tensor.dtype) if tensor.dtype.kind == "i" else None
    value = data.draw(st.sampled_from(NUMBERS) if limits is None else st.sampled_from([limits.min, -1, 1, limits.max]))
    with np.errstate(over="ignore"):  # of half precision
        value = np.asarray(value).astype(tensor.dtype)
    if data.draw(st.booleans()):
        tensor[...] = value
    else:
        tensor.flat[data.draw(st.integers(0, tensor.size - 1))] = value
    path = saved.with_name("tensors.safetensors")
    save_file({**tensors, name: tensor}, path, metadata_of(saved))
    check_estimates(path)


def test_networks_whose_layers_each_may_be_and_whose_product_may_not_be_are_refused(saved: Path):
    tensors = load_file(saved)
    for layer in range(1, 12):  # each multiplies by 6 * 6e4
        tensors[f"conv/0/{layer}/weight"] = np.full((6, 1 if layer == 11 else 6), 6e4, np.float16)
        tensors[f"conv/0/{layer}/bias"] = np.zeros(1 if layer == 11 else 6, np.float32)
    path = saved.with_name("deep.safetensors")
    save_file(tensors, path, metadata_of(saved))
    with pytest.raises(ProfileError, match="the networks of group conv exceed the range of 32-bit floats"):
        load_predictor(path)
