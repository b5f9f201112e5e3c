"""Boosted trees grown on measured kernels: their predictions, and the rows that they learn from."""

from __future__ import annotations

import numpy as np

from costmodel.predictor.group_model import UNMEASURED
from costmodel.training import boosted_trees
from costmodel.training.boosted_trees import grow_device_trees, grow_host_trees


def test_host_times_are_predicted_from_similar_calls():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 900)
    x = np.eye(3, dtype=np.float32)[kind]
    truth = np.array([8.0, 12.0, 30.0], dtype=np.float32)[kind]
    host_us = truth * np.exp(rng.normal(0, 0.1, 900)).astype(np.float32)
    host_us[rng.random(900) < 0.5] = UNMEASURED
    trees = grow_host_trees(x, host_us)
    assert trees is not None
    np.testing.assert_allclose(np.exp(trees.forward(x)), truth, rtol=0.03)  # 150 calls of a kind, 10 % noise
    assert grow_host_trees(x, np.full(900, UNMEASURED, dtype=np.float32)) is None
    assert grow_host_trees(x, np.zeros(0, dtype=np.float32)) is None


def test_of_many_host_times_so_many_are_drawn_from_all(monkeypatch):
    x = np.repeat(np.eye(4, dtype=np.float32), 500, axis=0)  # in order: the first few hundred are of one kind
    truth = np.repeat(np.array([8.0, 12.0, 20.0, 30.0], dtype=np.float32), 500)
    monkeypatch.setattr(boosted_trees, "MOST_HOST_ROWS", 400)
    trees = grow_host_trees(x, truth)
    np.testing.assert_allclose(np.exp(trees.forward(x)), truth, rtol=0.01)
    odd = truth.copy()
    odd[::2] = UNMEASURED  # those are not among the drawn
    np.testing.assert_allclose(np.exp(grow_host_trees(x, odd).forward(x)), truth, rtol=0.01)
    few = np.full(2000, UNMEASURED, dtype=np.float32)
    few[::5] = truth[::5]  # as many as may be: all are taken
    taken = grow_host_trees(x, few).forward(x)
    monkeypatch.setattr(boosted_trees, "MOST_HOST_ROWS", 2000)
    assert (grow_host_trees(x, few).forward(x) == taken).all()


def test_device_times_that_jump_are_predicted_on_either_side():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (4000, 5)).astype(np.float32)
    target = np.where(x[:, 1] > 0.3, 1.0, 0.2) + 0.5 * x[:, 0]
    fresh = rng.uniform(-2, 2, (500, 5)).astype(np.float32)
    expected = np.where(fresh[:, 1] > 0.3, 1.0, 0.2) + 0.5 * fresh[:, 0]
    for count in (50, 200):  # the rate goes down as the number goes up
        error = np.abs(grow_device_trees(x, target.astype(np.float32), count).forward(fresh) - expected)
        assert np.median(error) < 0.03
    again = grow_device_trees(x, target.astype(np.float32), 50)
    assert again.count == 50
    assert (again.forward(fresh) == grow_device_trees(x, target.astype(np.float32), 50).forward(fresh)).all()


def test_rare_calls_that_launch_a_kernel_for_each_group_are_predicted():
    rng = np.random.default_rng(0)
    half, multiplied, groups = rng.random(6000) < 0.3, rng.random(6000) < 0.04, rng.uniform(2, 10, 6000)
    several_launches = half & multiplied
    host_us = np.where(several_launches, 20 + 4.8 * 2**groups, 25.0) * np.exp(rng.normal(0, 0.1, 6000))
    x = np.stack([half, multiplied, (groups - 6.0) / 2.3], axis=1).astype(np.float32)  # as scaled features are
    learnt, tested = np.arange(6000) < 4500, several_launches & (np.arange(6000) >= 4500)
    assert 15 <= tested.sum() <= 30  # some 1 % of the calls
    errors = [
        np.abs(trees.forward(x[tested]) - np.log(host_us[tested])).mean()
        for way in (False, True)
        if (trees := grow_host_trees(x[learnt], host_us[learnt].astype(np.float32), several_launches=way))
    ]
    assert errors[1] < 0.2 < 0.3 < errors[0]


def test_trees_grown_apart_tell_each_side_by_its_own_rows_unless_one_has_few():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (4000, 3)).astype(np.float32)
    x[:, 0] += np.copysign(np.float32(0.01), x[:, 0])  # not within a step of the threshold
    target = x[:, 1].copy()
    changed = np.where(x[:, 0] > 0, target, target + 5)
    apart, before = (grow_device_trees(x, some, 30, separate=0).forward(x) for some in (changed, target))
    high = x[:, 0] > 0
    # what the low side learnt does not show, but for the resolution of the leaves' values
    np.testing.assert_allclose(apart[high], before[high], atol=0.02)
    assert np.abs(apart - changed)[~high].mean() < 0.3
    few = x.copy()
    few[900:, 0] = 1.0
    few[:900, 0] = -1.0
    together = grow_device_trees(few, changed, 30)
    assert (grow_device_trees(few, changed, 30, separate=0).forward(few) == together.forward(few)).all()
