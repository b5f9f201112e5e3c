"""Pruned trees: what a cut costs by hand, and fewer nodes for nearly the same sums."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.predictor.trees import LEAF, Nodes, compact
from costmodel.training.boosted_trees import grow_device_trees
from costmodel.training.prune import prune

# left of 0: 1.0 or 1.1, whose mean is 1.05 and spread 0.05; right of it: 3.0
NODES = Nodes(
    feature=np.array([0, 0, LEAF, LEAF, LEAF]),
    number=np.array([0.0, -1.0, 1.0, 1.1, 3.0]),
    right=np.array([4, 3, 0, 0, 0]),
    roots=np.zeros(1, np.int64),
)
X = np.array([[-2.0], [-0.5], [1.0], [2.0]], np.float32)  # a quarter, a quarter, a half


def test_a_cut_within_the_tolerance_leaves_the_weighted_mean():
    # cutting the lower node changes half of the rows by 0.05: root mean square sqrt(0.5 * 0.0025) = 0.0354
    trees = compact(NODES)
    cut = prune(trees, X, 0.036).verify(1)
    assert cut.feature.tolist() == [0, LEAF, LEAF]
    np.testing.assert_allclose(cut.forward(X), [1.05, 1.05, 3.0, 3.0], atol=1e-3)
    assert prune(trees, X, 0.035).feature.tolist() == trees.feature.tolist()


def test_a_leaf_that_no_row_reaches_costs_nothing():
    cut = prune(compact(NODES), X[1:], 1e-3).verify(1)
    np.testing.assert_allclose(cut.forward(X), [1.1, 1.1, 3.0, 3.0], atol=1e-3)


@pytest.mark.parametrize("tolerance", [0.005, 0.02])
def test_sums_change_by_the_tolerance(tolerance: float):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (3000, 4)).astype(np.float32)
    target = (np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + rng.normal(0, 0.1, 3000)).astype(np.float32)
    trees = grow_device_trees(x, target, 30)
    cut = prune(trees, x, tolerance).verify(4)
    change = np.sqrt(((cut.forward(x) - trees.forward(x)) ** 2).mean())
    assert len(cut.feature) < 0.9 * len(trees.feature)
    assert 0.3 * tolerance < change < 3 * tolerance  # the changes of several trees are not independent
