"""Boosted trees in numpy: held to scikit-learn, to a tree by hand, and to nodes that lead nowhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor

from costmodel.errors import ProfileError
from costmodel.predictor import trees
from costmodel.predictor.trees import Trees, joined, of_regressors

# at most 1: 10; else, by the second feature, 20 or 30; and a tree that is one leaf
BY_HAND = Trees(
    feature=np.array([0, -1, 1, -1, -1, -1], np.int8),
    number=np.array([1.0, 10.0, -1.0, 20.0, 30.0, 0.5], np.float32),
    right=np.array([2, 0, 2, 0, 0, 0], np.int16),
    roots=np.array([0, 5], np.int32),
)


def test_a_tree_by_hand():
    x = np.array([[1.0, 9.0], [1.5, -1.0], [1.5, -0.5]], np.float32)
    assert BY_HAND.verify(2).forward(x).tolist() == [10.5, 20.5, 30.5]
    assert BY_HAND.forward(x[:0]).shape == (0,)


def test_trees_of_two_sides_joined_at_their_roots():
    low = replace(BY_HAND, number=BY_HAND.number + np.where(BY_HAND.feature == -1, 100, 0).astype(np.float32))
    whole = joined(low, BY_HAND, feature=2, number=0.5).verify(3)
    assert (len(whole.roots), len(whole.feature)) == (2, 2 * len(BY_HAND.feature) + 2)
    x = np.array([[1.5, -1.0, 0.5], [1.5, -1.0, 0.6], [1.0, 9.0, -3.0]], np.float32)
    assert whole.forward(x).tolist() == [220.5, 20.5, 210.5]  # each of two trees adds 100 on the low side


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
    np.testing.assert_allclose(of_regressors(grown).verify(4).forward(asked), reference, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"right": np.array([0, 0, 2, 0, 0, 0])}, "lead to leaves"),  # the root is on its own right
        ({"right": np.array([2, 0, -2, 0, 0, 0])}, "lead to leaves"),  # upwards
        ({"right": np.array([2, 2, 2, 0, 0, 0])}, "lead to leaves"),  # a leaf with something below it
        ({"right": np.array([1, 0, 2, 0, 0, 0])}, "lead to leaves"),  # both sides are one
        ({"right": np.array([6, 0, 2, 0, 0, 0])}, "lead to leaves"),
        ({"feature": np.array([2, -1, 1, -1, -1, -1])}, "lead to leaves"),
        ({"feature": np.array([-2, -1, 1, -1, -1, -1])}, "lead to leaves"),
        ({"feature": np.array([0, -1, 1, -1, -1, 0]), "right": np.array([2, 0, 2, 0, 0, 2])}, "lead to leaves"),
        ({"number": np.zeros(5)}, "do not fit"),
        ({"roots": np.array([0, 6])}, "do not fit"),
        ({"roots": np.array([-1])}, "do not fit"),
        ({"roots": np.zeros(0)}, "do not fit"),
    ],
)
def test_nodes_that_lead_nowhere_are_refused(change: dict[str, np.ndarray], message: str):
    with pytest.raises(ProfileError, match=message):
        replace(BY_HAND, **change).verify(2)


def test_a_tree_deeper_than_any_that_was_grown_ends():
    depth = 2 * trees.DEEPEST  # node after node on the left, each with a leaf far behind on its right
    chain = Trees(
        feature=np.array([0] * depth + [-1] * (depth + 1), np.int8),
        number=np.ones(2 * depth + 1, np.float32),
        right=np.array([depth] * depth + [0] * (depth + 1), np.int16),
        roots=np.zeros(1, np.int32),
    ).verify(1)
    with pytest.raises(
        ProfileError, match="a tree of the predictor is deeper than 1024 nodes; train the profile again"
    ):
        chain.forward(np.zeros((1, 1), np.float32))
