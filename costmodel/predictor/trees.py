"""Gradient-boosted regression trees as plain arrays: grown by scikit-learn, evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.errors import ProfileError

Array = npt.NDArray[np.float32]
Values = npt.NDArray[Any]
LEAF = -1
"""Feature index of a leaf."""
AT_ONCE = 1 << 20
"""Pairs of a row and a tree that are evaluated at once: some tens of megabytes."""
DEEPEST = 1024
"""Largest depth of a tree in a file; grown trees have less than a tenth of it."""
MOST_TREES = 100_000


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees whose leaf values are summed, all nodes in one list in preorder.

    Attributes:
        feature: feature that a node compares, LEAF for a leaf, (nodes,).
        number: threshold up to which a row goes left; value of a leaf, (nodes,).
        right: offset from a node to its right child, 0 for a leaf; the left child is the next node, (nodes,).
        roots: index of each tree's root, (trees,).
    """

    feature: npt.NDArray[np.int8]
    number: Array
    right: npt.NDArray[np.int16]
    roots: npt.NDArray[np.int32]

    def forward(self, x: Array) -> Array:
        """Sums of leaf values, (rows,), for scaled features, (rows, features).

        Raises:
            ProfileError: a tree is deeper than DEEPEST.
        """
        count = max(1, AT_ONCE // len(self.roots))
        parts = [self._forward(x[start : start + count]) for start in range(0, len(x), count)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)

    def _forward(self, x: Array) -> Array:
        total = np.zeros(len(x))
        row, place = np.repeat(np.arange(len(x)), len(self.roots)), np.tile(self.roots, len(x))
        for _ in range(DEEPEST):
            if not len(place):
                return total.astype(np.float32)
            feature = self.feature[place]
            ended = feature == LEAF
            total += np.bincount(row[ended], self.number[place[ended]], minlength=len(x))
            row, place, feature = row[~ended], place[~ended], feature[~ended]
            goes_left = x[row, feature] <= self.number[place]
            place += np.where(goes_left, np.int16(1), self.right[place])
        raise ProfileError(f"a tree of the predictor is deeper than {DEEPEST} nodes; train the profile again")

    def verify(self, width: int) -> Trees:
        """These trees, after checking that every node leads to a leaf and compares one of `width` features.

        Raises:
            ProfileError: a node does not.
        """
        count = len(self.feature)
        alike = len(self.number) == len(self.right) == count
        trees = len(self.roots)
        if not alike or not count or not 0 < trees <= MOST_TREES or self.roots.min() < 0 or self.roots.max() >= count:
            raise ProfileError("the nodes of the trees do not fit together")
        leaf = self.feature == LEAF
        inside = np.arange(count) + self.right < count
        below = (self.feature >= 0) & (self.feature < width) & (self.right > 1) & inside
        if not np.where(leaf, self.right == 0, below).all():
            raise ProfileError("the nodes of the trees do not lead to leaves")
        return self


def joined(low: Trees, high: Trees, feature: int, number: float) -> Trees:
    """Trees that compare one feature at their roots and go on with a tree of either side.

    Args:
        low: trees for rows whose feature is at most the number, one after another, as `of_regressors` lists them.
        high: trees for rows whose feature is larger; as many.
        feature: feature that the roots compare.
        number: threshold of the roots.
    """
    behind = 1 + np.diff(low.roots, append=len(low.feature))
    sizes = behind + np.diff(high.roots, append=len(high.feature))

    def interleaved(asked: Iterable[float], left: Values, right: Values) -> Values:
        sides = np.split(left, low.roots[1:]), np.split(right, high.roots[1:])
        return np.concatenate([part for first, *both in zip(asked, *sides, strict=True) for part in ([first], *both)])

    return Trees(
        feature=interleaved([feature] * len(behind), low.feature, high.feature).astype(np.int8),
        number=interleaved([number] * len(behind), low.number, high.number).astype(np.float32),
        right=interleaved(behind, low.right, high.right).astype(np.int16),
        roots=(np.cumsum(sizes) - sizes).astype(np.int32),
    )


def of_regressors(regressors: Sequence[Any]) -> Trees:
    """Mean of scikit-learn's HistGradientBoostingRegressors, fitted to finite features, as plain trees.

    scikit-learn has no public access to a fitted model's nodes; a test compares the result with its predictions.
    """
    grown = [tree[0].nodes for one in regressors for tree in one._predictors]
    nodes = np.concatenate(grown)
    begin = [float(one._baseline_prediction.item()) for one in regressors]
    start = sum(begin) / len(regressors) / len(grown)  # each tree adds its share
    leaf = nodes["is_leaf"] == 1
    place = np.concatenate([np.arange(len(some)) for some in grown])
    if not (nodes["left"] == place + 1)[~leaf].all():
        raise NotImplementedError("this version of scikit-learn lists the nodes of its trees in another order")
    return Trees(
        feature=np.where(leaf, LEAF, nodes["feature_idx"]).astype(np.int8),
        number=np.where(leaf, start + nodes["value"] / len(regressors), nodes["num_threshold"]).astype(np.float32),
        right=np.where(leaf, 0, nodes["right"].astype(np.int64) - place).astype(np.int16),
        roots=np.cumsum([0, *map(len, grown[:-1])]).astype(np.int32),
    )
