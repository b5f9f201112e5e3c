"""Boosted trees in numpy: held to scikit-learn, to a tree by hand, and to nodes that lead nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor

from costmodel.errors import ProfileError
from costmodel.predictor import trees
from costmodel.predictor.neighbours import STEP
from costmodel.predictor.trees import LEAF, Nodes, Trees, compact, joined, of_regressors

# at most 1: 10; else, by the second feature, 20 or 30; and a tree that is one leaf
GROWN = Nodes(
    feature=np.array([0, LEAF, 1, LEAF, LEAF, LEAF]),
    number=np.array([1.0, 10.0, -1.0, 20.0, 30.0, 0.5]),
    right=np.array([2, 0, 4, 0, 0, 0]),
    roots=np.array([0, 5]),
)
# the same level by level: two roots, the children of the first, the children of the second of these
BY_HAND = Trees(
    count=2,
    feature=np.array([0, LEAF, LEAF, 1, LEAF, LEAF], np.int8),
    number=np.array([round(1 / STEP), 1, 20, round(-1 / STEP), 40, 60], np.int16),
    unit=0.5,
    base=0.0,
)


def test_a_tree_by_hand():
    x = np.array([[1.0, 9.0], [1.5, -1.0], [1.5, -0.5]], np.float32)
    assert BY_HAND.verify(2).forward(x).tolist() == [10.5, 20.5, 30.5]
    assert BY_HAND.forward(x[:0]).shape == (0,)


def test_grown_trees_are_listed_level_by_level():
    found = compact(GROWN)
    assert (found.count, found.feature.tolist()) == (2, BY_HAND.feature.tolist())
    x = np.array([[1.0, 9.0], [1.5, -1.0], [1.5, -0.5]], np.float32)
    # leaves are multiples of a 32,767th of the largest distance from the median leaf, 20
    np.testing.assert_allclose(found.verify(2).forward(x), [10.5, 20.5, 30.5], atol=20 / 32767)


def test_a_flag_stays_apart_from_its_opposite():
    nodes = Nodes(np.array([0, LEAF, LEAF]), np.array([1e-35, 0.0, 1.0]), np.array([2, 0, 0]), np.zeros(1, np.int64))
    assert compact(nodes).forward(np.array([[0.0], [1.0]], np.float32)).tolist() == [0.0, 1.0]


def test_trees_of_two_sides_joined_at_their_roots():
    low = replace(GROWN, number=GROWN.number + np.where(GROWN.feature == LEAF, 100, 0))
    nodes = joined(low, GROWN, feature=2, number=0.5)
    assert (len(nodes.roots), len(nodes.feature)) == (2, 2 * len(GROWN.feature) + 2)
    x = np.array([[1.5, -1.0, 0.5], [1.5, -1.0, 0.6], [1.0, 9.0, -3.0]], np.float32)
    found = compact(nodes).verify(3).forward(x)
    np.testing.assert_allclose(found, [220.5, 20.5, 210.5], atol=0.01)  # each of two trees adds 100 on the low side


def test_rows_in_portions(monkeypatch: pytest.MonkeyPatch):
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    whole = BY_HAND.forward(x)
    monkeypatch.setattr(trees, "AT_ONCE", 7)
    assert BY_HAND.forward(x).tolist() == whole.tolist()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 3))
def test_equal_to_scikit_learns_trees(seed: int, count: int):
    random = np.random.default_rng(seed)
    x = random.normal(size=(300, 4)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    grown = [
        HistGradientBoostingRegressor(loss="absolute_error", max_iter=20, max_features=0.5, random_state=number).fit(
            x, y
        )
        for number in range(count)
    ]
    asked = random.normal(size=(100, 4)).astype(np.float32)
    reference = np.mean([one.predict(asked) for one in grown], axis=0)
    apart = np.abs(compact(of_regressors(grown)).verify(4).forward(asked) - reference)
    assert np.median(apart) < 1e-3
    assert (apart > 5e-3).mean() <= 0.05  # a row within a step of a threshold may take another side of it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature": np.array([LEAF, LEAF, LEAF, 1, LEAF, LEAF], np.int8)}, "do not fit"),  # children of no node
        ({"feature": np.array([0, LEAF, LEAF, 1, LEAF, 0], np.int8)}, "do not fit"),  # a node without children
        ({"feature": np.array([LEAF, LEAF, 0, LEAF, LEAF, 1], np.int8)}, "lead to leaves"),  # a node that is its child
        ({"feature": np.array([2, LEAF, LEAF, 1, LEAF, LEAF], np.int8)}, "features that there are not"),
        ({"feature": np.array([0, -2, LEAF, 1, LEAF, LEAF], np.int8)}, "do not fit|features that there are not"),
        ({"number": np.zeros(5, np.int16)}, "do not fit"),
        ({"count": 0}, "do not fit"),
        ({"count": 3}, "do not fit"),
    ],
)
def test_nodes_that_lead_nowhere_are_refused(change: dict[str, Any], message: str):
    with pytest.raises(ProfileError, match=message):
        replace(BY_HAND, **change).verify(2)


def test_a_tree_deeper_than_any_that_was_grown_ends():
    depth = 2 * trees.DEEPEST  # the left child of each node is a leaf, the right one goes on
    feature = np.array([0, *[LEAF, 0] * depth, LEAF, LEAF], np.int8)
    chain = Trees(1, feature, np.full(len(feature), -1, np.int16), 1.0, 0.0).verify(1)
    with pytest.raises(
        ProfileError, match="a tree of the predictor is deeper than 1024 nodes; train the profile again"
    ):
        chain.forward(np.zeros((1, 1), np.float32))
