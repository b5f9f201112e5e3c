"""The predictor: the same numbers as scikit-learn's, memory of what was measured, and files that are refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from collectors.conv import ConvUnit, unit_graph
from collectors.matmul import linear_graph
from costmodel.errors import ProfileError
from costmodel.features import Roofline, featurize
from costmodel.kernels import Kernel, eager_kernels
from costmodel.predictor import (
    OUTLYING,
    RECALLED_WIDTH,
    Array,
    Estimate,
    GroupModel,
    Network,
    Predictor,
    distances,
    load_predictor,
    portions,
    save_predictor,
    scaled,
    weigh,
)
from costmodel.train import Settings, train_network

ROOFLINE = Roofline(4e6, {"conv.float32": 2e8, "matmul.float32": 4e7}, 1.5)


def conv(channels: int, size: int = 14) -> Kernel:
    return eager_kernels(unit_graph(ConvUnit(8, channels, channels, size, activation=False), "nchw", "nchw"))[0]


KERNELS = [conv(channels) for channels in (8, 16, 24, 32, 48, 64, 96, 128)]
POSITIONS = [0.5] * len(KERNELS)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    """Two small random networks for convolutions, which remember eight of them."""
    rng = np.random.default_rng(0)
    features = [featurize(kernel, ROOFLINE, 132) for kernel in KERNELS]
    names = tuple(features[0])
    raw = np.array([[named[name] for name in names] for named in features], dtype=np.float32)
    mean = raw.mean(0)
    scale = np.where(raw.std(0) > 1e-6, raw.std(0), 1.0).astype(np.float32)
    width = len(names)

    def layer(*shape: int) -> Array:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    networks = tuple(Network((layer(width, 6), layer(6, 1)), (layer(6), layer(1))) for _ in range(2))
    model = GroupModel(
        names=names,
        mean=mean,
        scale=scale,
        networks=networks,
        memory=((raw - mean) / scale).astype(np.float32),
        residual=np.linspace(-0.2, 0.2, len(raw), dtype=np.float32),
        reach=0.5,
        edges=np.array([4.0, 40.0], dtype=np.float32),
        widths=np.array([0.3, 0.2, 0.1], dtype=np.float32),
        far=1.0,
    )
    return Predictor({"conv": model}, ROOFLINE, 132)


@pytest.mark.parametrize("hidden", [(5,), (16, 8), (7, 7, 7)])
def test_the_numpy_forward_pass_is_scikit_learns(hidden: tuple[int, ...]):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 12))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    regressor = MLPRegressor(hidden_layer_sizes=hidden, max_iter=30, random_state=0)
    with pytest.warns(ConvergenceWarning):
        regressor.fit(x, y)
    network = Network(
        tuple(weight.astype(np.float32) for weight in regressor.coefs_),
        tuple(bias.astype(np.float32) for bias in regressor.intercepts_),
    )
    new = rng.normal(size=(500, 12))
    expected = regressor.predict(new)
    np.testing.assert_allclose(network.forward(new.astype(np.float32)), expected, rtol=1e-5, atol=1e-5)


def test_a_trained_network_is_the_one_that_scikit_learn_trained():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 5)).astype(np.float32)
    y = x[:, 0] - x[:, 1]
    settings = Settings(hidden=(9, 4), epochs=8, learning_rate=2e-3, batch=128)
    network = train_network(x, y, settings, seed=3)
    same = MLPRegressor(hidden_layer_sizes=(9, 4), alpha=3e-3, batch_size=128, warm_start=True)
    same.set_params(n_iter_no_change=8, random_state=3, tol=0)
    for rate, epochs in ((2e-3, 6), (4e-4, 1), (8e-5, 1)):
        same.set_params(learning_rate_init=rate, max_iter=epochs)
        with pytest.warns(ConvergenceWarning):
            same.fit(x, y)
    np.testing.assert_allclose(network.forward(x), same.predict(x), rtol=1e-5, atol=1e-6)


def test_features_are_held_within_what_networks_have_seen():
    raw = np.array([[1.0, 5.0], [1000.0, -1000.0]], np.float32)
    found = scaled(raw, np.array([1.0, 1.0], np.float32), np.array([2.0, 2.0], np.float32))
    np.testing.assert_allclose(found, [[0.0, 2.0], [OUTLYING, -OUTLYING]])


def test_distances_are_euclidean():
    found = distances(np.array([[0.0, 0.0], [3.0, 0.0]], np.float32), np.array([[0.0, 4.0]], np.float32))
    np.testing.assert_allclose(found, [[4.0], [5.0]])


@pytest.mark.parametrize(("at_once", "sizes"), [(1, [1] * 5), (14, [2, 2, 1]), (1000, [5])])
def test_few_distances_are_computed_at_once(monkeypatch: pytest.MonkeyPatch, at_once: int, sizes: list[int]):
    monkeypatch.setattr("costmodel.predictor.AT_ONCE", at_once)
    x, memory = np.arange(10, dtype=np.float32).reshape(5, 2), np.zeros((7, 2), dtype=np.float32)
    parts = list(portions(x, memory))
    assert [len(part) for part in parts] == sizes
    assert np.array_equal(np.concatenate(parts), x)


def test_an_equal_kernel_recalls_what_was_left_unexplained():
    distance = np.array([[0.0, 0.4, 2.0]], dtype=np.float32)
    correction, nearest = weigh(distance, np.array([0.5, -0.5, 0.1], dtype=np.float32), reach=1.0)
    assert correction[0] == pytest.approx(0.5, rel=1e-5)
    assert nearest[0] == 0.0


def test_far_away_there_is_no_correction():
    correction, nearest = weigh(np.array([[50.0, 60.0]], np.float32), np.array([1.0, 1.0], np.float32), reach=1.0)
    assert correction[0] == 0.0
    assert nearest[0] == 50.0


def test_a_neighbour_corrects_in_part():
    correction, _ = weigh(np.array([[1.0]], np.float32), np.array([1.0], np.float32), reach=1.0)
    kernel = np.exp(-0.5)
    assert correction[0] == pytest.approx(kernel / (kernel + 0.3), rel=1e-5)


def test_a_measured_kernel_is_recalled(predictor: Predictor):
    model = predictor.groups["conv"]
    base = np.mean([network.forward(model.memory) for network in model.networks], axis=0)
    ratio, nearest = model.log_ratio(model.memory)
    np.testing.assert_allclose(ratio, base + model.residual, atol=1e-4)
    assert nearest.max() < 1e-2


def test_networks_are_held_within_what_kernels_of_the_size_were_measured_to_take(predictor: Predictor):
    tenfold = Network((np.array([[0.0], [10.0]], np.float32),), (np.zeros(1, np.float32),))
    limits = np.array([[-1.0, 2.0], [0.0, 5.0]], np.float32)
    model = replace(
        predictor.groups["conv"],
        names=("log_bound_us", "other"),
        networks=(tenfold,),
        memory=np.array([[3.0, 0.4]], np.float32),
        residual=np.array([0.5], np.float32),
        sizes=np.array([1.0], np.float32),
        limits=limits,
    )
    # ten times the second feature, but small kernels take exp(-1) to exp(2) of their bound, large ones 1 to exp(5)
    x = np.array([[0.0, 0.1], [0.0, 0.3], [1.0, 0.3], [1.1, 0.3], [2.0, 0.9], [2.0, -0.9], [0.0, -0.9]], np.float32)
    np.testing.assert_allclose(model.expected(x), [1.0, 2.0, 2.0, 3.0, 5.0, 0.0, -1.0], atol=1e-5)
    above = np.array([[3.0, 0.9], [3.0, 0.4]], np.float32)
    assert model.log_ratio(above)[0][1] == pytest.approx(4.5, abs=1e-3)  # what was measured is recalled as it was


def test_intervals_hold_the_estimate(predictor: Predictor):
    for estimate in predictor.predict(KERNELS, POSITIONS):
        assert estimate.in_range
        assert 0 < estimate.low_us < estimate.us < estimate.high_us
        assert estimate.high_us / estimate.us == pytest.approx(estimate.us / estimate.low_us)
        assert estimate.high_us / estimate.us == pytest.approx(np.exp(RECALLED_WIDTH))  # as each was measured


def test_a_kernel_unlike_any_measured_is_out_of_range_and_less_certain(predictor: Predictor):
    near, far = predictor.predict([KERNELS[0], conv(2048, 7)], [0.5, 0.5])
    assert near.in_range
    assert not far.in_range
    assert far.high_us / far.us > near.high_us / near.us


def test_an_unknown_group_is_out_of_range_and_at_least_its_bound(predictor: Predictor):
    linear = Kernel("aten", linear_graph(64, 64, 64, "float32", bias=True), ())
    bound = ROOFLINE.bound_us(linear)
    assert predictor.predict([linear], [0.5]) == [Estimate(2 * bound, bound, 8 * bound, in_range=False)]


def test_estimates_come_in_the_order_of_the_kernels(predictor: Predictor):
    linear = Kernel("aten", linear_graph(64, 64, 64, "float32", bias=True), ())
    mixed = [KERNELS[3], linear, KERNELS[0]]
    alone = [predictor.predict([kernel], [0.5])[0] for kernel in mixed]
    assert [e.us for e in predictor.predict(mixed, [0.5] * 3)] == pytest.approx([e.us for e in alone], rel=1e-5)
    assert predictor.predict([], []) == []


def test_other_features_than_trained_on_are_refused(predictor: Predictor):
    model = replace(predictor.groups["conv"], names=("surprise", *predictor.groups["conv"].names[1:]))
    with pytest.raises(ProfileError, match=r"other features .*surprise"):
        Predictor({"conv": model}, ROOFLINE, 132).predict(KERNELS[:1], [0.5])


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


def test_a_file_from_before_networks_were_held_within_limits_is_read(predictor: Predictor, saved: Path):
    changed(saved, _drop("conv/sizes"))
    changed(saved, _drop("conv/limits"))
    assert load_predictor(saved).predict(KERNELS, POSITIONS) == predictor.predict(KERNELS, POSITIONS)


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
    refused(saved, "not a predictor file")


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


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param(_nan, "not finite", id="nan"),
        pytest.param(_set("conv/mean", np.zeros(3)), "not finite float32", id="float64"),
        pytest.param(_say("schema", "99"), "schema '99'", id="schema"),
        pytest.param(_say("groups", "{"), "not a predictor file", id="metadata"),
        pytest.param(_infinite_reach, "do not fit together", id="infinite-reach"),
        pytest.param(
            _say("device", '{"bytes_per_us": NaN, "peak": {}, "floor_us": 1, "multiprocessors": 1}'),
            "no positive number",
            id="ceiling",
        ),
        pytest.param(_drop("conv/mean"), "not a predictor file", id="tensor-missing"),
        pytest.param(_drop("conv/0/0/weight"), "do not fit together", id="network-missing"),
        pytest.param(_set("conv/0/1/weight", np.zeros((5, 1), np.float32)), "layers of network", id="layers"),
        pytest.param(_set("conv/0/0/bias", np.zeros(1, np.float32)), "layers of network", id="bias"),
        pytest.param(_set("conv/memory", np.zeros((8, 2), np.float32)), "do not fit together", id="memory"),
        pytest.param(_set("conv/widths", np.zeros(9, np.float32)), "do not fit together", id="widths"),
        pytest.param(_set("conv/sizes", np.zeros(2, np.float32)), "do not fit together", id="sizes"),
        pytest.param(_set("conv/limits", np.zeros((1, 3), np.float32)), "do not fit together", id="limits"),
        pytest.param(_set("conv/residual", np.zeros((0,), np.float32)), "do not fit together", id="no-memory"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(saved: Path, change: Change, match: str):
    changed(saved, change)
    refused(saved, match)
