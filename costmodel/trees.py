"""Gradient-boosted regression trees as plain arrays, evaluated in numpy: grown by scikit-learn, used without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.errors import ProfileError

Array = npt.NDArray[np.float32]
Places = npt.NDArray[np.int32]
AT_ONCE = 1 << 20
"""So many pairs of a row and a tree go down at once: some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class Trees:
    """Trees whose leaves are summed, all nodes in one list; a node's children lie after it, a leaf is its own child.

    Attributes:
        feature: that a node looks at, (nodes,).
        threshold: what it has at most on the left, (nodes,).
        left, right: places of a node's children, (nodes,).
        value: what a leaf adds, (nodes,).
        roots: places of the trees' first nodes, (trees,).
    """

    feature: Places
    threshold: Array
    left: Places
    right: Places
    value: Array
    roots: Places

    def forward(self, x: Array) -> Array:
        """Sums of leaves, (rows,), for scaled features (rows, features)."""
        count = max(1, AT_ONCE // len(self.roots))
        parts = [self._forward(x[start : start + count]) for start in range(0, len(x), count)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)

    def _forward(self, x: Array) -> Array:
        rows = np.arange(len(x))[:, None]
        place = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        while True:
            goes_left = x[rows, self.feature[place]] <= self.threshold[place]
            below = np.where(goes_left, self.left[place], self.right[place])
            if (below == place).all():
                return np.asarray(self.value[place].sum(1, dtype=np.float64), dtype=np.float32)
            place = below

    def verify(self, width: int) -> Trees:
        """These trees, if every node leads to a leaf and looks at one of so many features.

        Raises:
            ProfileError: they do not.
        """
        nodes = np.arange(len(self.feature))
        alike = all(len(some) == len(nodes) for some in (self.threshold, self.left, self.right, self.value))
        if (
            not alike
            or not len(nodes)
            or not len(self.roots)
            or (self.roots < 0).any()
            or self.roots.max() >= len(nodes)
        ):
            raise ProfileError("the nodes of the trees do not fit together")
        leaf = self.left == nodes
        down = np.where(leaf, self.right == nodes, (self.left > nodes) & (self.right > nodes))
        inside = (np.maximum(self.left, self.right) < len(nodes)) & (self.feature >= 0) & (self.feature < width)
        if not (down & inside).all():
            raise ProfileError("the nodes of the trees do not lead to leaves")
        return self


def of_regressors(regressors: Sequence[Any]) -> Trees:
    """The mean of scikit-learn's HistGradientBoostingRegressors, which were fitted to finite features.

    It has no public way to a fitted model's nodes; a test holds this equal to what it predicts.
    """
    grown = [tree[0].nodes for one in regressors for tree in one._predictors]
    roots = np.cumsum([0, *map(len, grown[:-1])])
    nodes = np.concatenate(grown)
    own, root = np.arange(len(nodes)), np.repeat(roots, [len(some) for some in grown])
    leaf = nodes["is_leaf"] == 1
    left, right = (np.where(leaf, own, root + nodes[side]).astype(np.int32) for side in ("left", "right"))
    begin = [float(one._baseline_prediction.item()) for one in regressors]
    start = sum(begin) / len(regressors) / len(grown)  # each tree adds its share
    return Trees(
        feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
        threshold=np.where(leaf, 0.0, nodes["num_threshold"]).astype(np.float32),
        left=left,
        right=right,
        value=np.where(leaf, start + nodes["value"] / len(regressors), 0.0).astype(np.float32),
        roots=roots.astype(np.int32),
    )
