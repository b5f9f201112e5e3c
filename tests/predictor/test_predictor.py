"""The predictor: the same numbers as scikit-learn's, and memory of what was measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from collectors.workloads.matmuls import linear_graph
from costmodel.errors import ProfileError
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.group_model import RECALLED_WIDTH, USUAL_HOST_US
from costmodel.predictor.neighbours import EXACT, STEP, corrections, distances, in_steps, portions, spread_sample
from costmodel.predictor.network import OUTLYING, Array, NeuralNetwork, scaled
from costmodel.predictor.predictor import Predictor
from costmodel.training.kernel_models import TrainingSettings, train_network
from tests.support.predictors import (
    KERNELS,
    MEASURED_US,
    POSITIONS,
    ROOFLINE,
    conv,
    one_leaf,
    recall_of,
    small_predictor,
)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return small_predictor()


@pytest.mark.parametrize("hidden", [(5,), (16, 8), (7, 7, 7)])
def test_the_numpy_forward_pass_is_scikit_learns(hidden: tuple[int, ...]):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 12))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    regressor = MLPRegressor(hidden_layer_sizes=hidden, max_iter=30, random_state=0)
    with pytest.warns(ConvergenceWarning):
        regressor.fit(x, y)
    network = NeuralNetwork(
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
    settings = TrainingSettings(hidden=(9, 4), epochs=8, learning_rate=2e-3, batch=128)
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
    monkeypatch.setattr("costmodel.predictor.neighbours.AT_ONCE", at_once)
    rows = np.array([1, 4, 5, 8, 9])
    parts = list(portions(rows, numbers=7))
    assert [len(part) for part in parts] == sizes
    assert np.array_equal(np.concatenate(parts), rows)


def test_an_equal_kernel_takes_the_whole_residual_of_the_nearest():
    measured = np.array([[1.0, 2.0], [1.0, 2.005], [1.0, 2.4], [-3.0, 0.0]], dtype=np.float32)
    x = np.array([[1.0, 2.0], [1.0, 2.4], [1.0, 2.38], [5.0, 5.0]], dtype=np.float32)
    residual = np.array([0.5, 0.1, -0.5, 0.2], dtype=np.float32)
    correction, nearest = corrections(x, measured, residual, reach=0.001)
    # the third is 0.02 from the nearest: another kernel, and out of the reach of its residual
    np.testing.assert_allclose(correction, [0.5, -0.5, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(nearest, [0.0, 0.0, 0.02, math.hypot(4.0, 2.6)], rtol=1e-4, atol=1e-6)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_corrections_are_those_of_all_distances(seed: int, features: int):
    rng = np.random.default_rng(seed)
    measured = rng.uniform(-OUTLYING, OUTLYING, (40, features)).astype(np.float32)
    apart = rng.normal(size=(40, features))
    apart *= rng.choice([0.0, 0.004, 0.02, 0.1, 1.0], 40)[:, None] / np.linalg.norm(apart, axis=1, keepdims=True)
    x, residual = (measured + apart).astype(np.float32), rng.normal(size=40).astype(np.float32)
    between = np.linalg.norm(measured[:, None].astype(float) - measured[None], axis=2) + np.eye(40)
    assume(between.min() > 0.01)  # or two kernels are as good as one, and either is the nearest
    correction, nearest = corrections(x, measured, residual, reach=0.2)
    distance = np.linalg.norm(x[:, None].astype(float) - measured[None], axis=2)
    np.testing.assert_allclose(nearest, distance.min(1), rtol=1e-4, atol=1e-5)
    weight = np.exp(-0.5 * (distance / 0.2) ** 2)
    mean = weight @ residual / (weight.sum(1) + 0.3)
    equal = distance.min(1) < EXACT
    expected = np.where(equal, residual[distance.argmin(1)], mean)
    np.testing.assert_allclose(correction, expected, atol=6e-3)  # squares of differences of large numbers are inexact


def test_measured_kernels_are_kept_to_a_fiftieth_of_the_distance_of_equal_ones():
    x = np.array([[0.0, OUTLYING], [-OUTLYING, 1.2345], [9.0, -9.0]], np.float32)
    steps = in_steps(x)
    assert steps.dtype == np.int16
    np.testing.assert_allclose(steps * STEP, [[0.0, 6.0], [-6.0, 1.2345], [6.0, -6.0]], atol=STEP / 2 * 1.001)
    assert STEP < EXACT / 50


def line(*places: float) -> Array:
    return np.array([[place] for place in places], np.float32)


def test_far_away_there_is_no_correction():
    correction, nearest = corrections(line(0.0), line(5.0, 6.0), np.array([1.0, 1.0], np.float32), reach=1.0)
    assert (correction[0], nearest[0]) == (0.0, 5.0)


def test_a_neighbour_corrects_in_part():
    correction, _ = corrections(line(0.0), line(1.0), np.array([1.0], np.float32), reach=1.0)
    kernel = np.exp(-0.5)
    assert correction[0] == pytest.approx(kernel / (kernel + 0.3), rel=1e-5)


def test_a_sample_is_some_of_the_rows_or_all():
    assert spread_sample(np.zeros((5, 2)), 5, seed=0).tolist() == [0, 1, 2, 3, 4]
    chosen = spread_sample(np.zeros((500, 2)), 50, seed=0)
    assert len(set(chosen.tolist())) == 50
    assert (np.diff(chosen) > 0).all()


def test_a_measured_kernel_is_recalled_by_its_key(predictor: Predictor):
    found = predictor.predict(KERNELS, POSITIONS)
    assert [one.us for one in found] == pytest.approx(MEASURED_US.tolist(), rel=2.5e-4)
    assert [one.host_us for one in found] == [USUAL_HOST_US] * len(KERNELS)


def test_a_kernel_with_the_features_of_a_measured_one_takes_its_residual(predictor: Predictor):
    model = predictor.groups["conv"]
    base = np.mean([network.forward(model.measured) for network in model.networks], axis=0)
    ratio, nearest = model.log_ratio(model.measured)
    np.testing.assert_allclose(ratio, base + model.residual, atol=1e-4)
    assert nearest.max() < 1e-2


def test_host_times_are_recalled_or_predicted_by_trees(predictor: Predictor):
    model = predictor.groups["conv"]
    host_us = np.array([3.0, 5.0, 9.0, 8.0, 4.0, 7.0, 6.0, -1.0], np.float32)  # the last was not measured
    for log, us in ((math.log(30.0), 30.0), (80.0, math.exp(9.0))):  # clipped to HOST_RANGE
        knowing = replace(model, recall=recall_of(MEASURED_US, host_us), host_trees=one_leaf(log))
        found = replace(predictor, groups={"conv": knowing}).predict([*KERNELS, conv(40)], [0.5] * 9)
        assert [one.host_us for one in found] == pytest.approx([*host_us[:-1], USUAL_HOST_US, us], rel=2.5e-4)


def test_trees_are_weighed_against_networks(predictor: Predictor):
    model = predictor.groups["conv"]
    other = model.measured + np.float32(0.5)
    alone = np.mean([network.forward(other) for network in model.networks], axis=0)
    mean = replace(model, trees=one_leaf(2.0), trees_share=0.4).expected(other)
    np.testing.assert_allclose(mean, 0.6 * alone + 0.4 * 2.0, rtol=1e-5)
    assert replace(model, trees=one_leaf(99.0)).expected(other).max() == 6.0  # held within limits, as networks are


def test_predictions_are_clipped_to_limits_by_size(predictor: Predictor):
    tenfold = NeuralNetwork((np.array([[0.0], [10.0]], np.float32),), (np.zeros(1, np.float32),))
    limits = np.array([[-1.0, 2.0], [0.0, 5.0]], np.float32)
    model = replace(
        predictor.groups["conv"],
        names=("log_bound_us", "other"),
        networks=(tenfold,),
        sample=in_steps(np.array([[3.0, 0.4]], np.float32)),
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
        Predictor({"conv": model}, ROOFLINE, 132).predict([conv(40)], [0.5])
