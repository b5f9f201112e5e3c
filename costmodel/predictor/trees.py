"""Gradient-boosted regression trees as plain arrays: grown by scikit-learn, evaluated with NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.errors import ProfileError
from costmodel.predictor.neighbours import STEP, in_steps
from costmodel.predictor.network import Array, Rows, Steps

LEAF = -1
"""Feature index of a leaf."""
AT_ONCE = 1 << 20
"""Pairs of a row and a tree that are evaluated at once: some tens of megabytes."""
DEEPEST = 1024
"""Largest depth of a tree in a file; grown trees have less than a tenth of it."""
MOST_TREES = 100_000
Places = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Trees:
    """Trees whose leaf values are summed: the nodes of all, level by level, so that no node needs an index.

    The first nodes are the roots; the two children of the n-th node that compares are at `count + 2 n` and behind it.

    Attributes:
        count: number of trees.
        feature: feature that a node compares, LEAF for a leaf, (nodes,).
        number: threshold in steps of scaled features up to which a row goes left; value of a leaf in multiples of
            `unit`, (nodes,).
        unit: resolution of leaf values.
        base: sum of the values that all leaves of a tree share.
    """

    count: int
    feature: npt.NDArray[np.int8]
    number: Steps
    unit: float
    base: float

    @cached_property
    def left(self) -> Places:
        """Index of each node's left child; anything for a leaf."""
        return np.asarray(self.count + 2 * (np.cumsum(self.feature != LEAF, dtype=np.int32) - 1), dtype=np.int32)

    def forward(self, x: Array) -> Array:
        """Sums of leaf values, (rows,), for scaled features, (rows, features).

        Raises:
            ProfileError: a tree is deeper than DEEPEST.
        """
        total = np.zeros(len(x))
        for rows, leaves in self.ends(x):
            total += np.bincount(rows, self.number[leaves], minlength=len(x))
        return (total * self.unit + self.base).astype(np.float32)

    def ends(self, x: Array) -> Iterator[tuple[Rows, Places]]:
        """Pairs of a row of x and a leaf that it ends in, in any order: a leaf a row and tree.

        Raises:
            ProfileError: a tree is deeper than DEEPEST.
        """
        count = max(1, AT_ONCE // self.count)
        for start in range(0, len(x), count):
            yield from self._ends(in_steps(x[start : start + count]), start)

    def _ends(self, x: Steps, start: int) -> Iterator[tuple[Rows, Places]]:
        values, width = x.ravel(), x.shape[1]
        begin = np.repeat(np.arange(len(x), dtype=np.int32) * width, self.count)
        place = np.tile(np.arange(self.count, dtype=np.int32), len(x))
        for _ in range(DEEPEST):
            feature = self.feature[place]
            goes_on = feature != LEAF
            if not goes_on.all():
                yield start + begin[~goes_on] // width, place[~goes_on]
                begin, place, feature = begin[goes_on], place[goes_on], feature[goes_on]
            if not len(place):
                return
            place = self.left[place] + (values[begin + feature] > self.number[place])
        raise ProfileError(f"a tree of the predictor is deeper than {DEEPEST} nodes; train the profile again")

    def verify(self, width: int) -> Trees:
        """These trees, after checking that every node leads to a leaf and compares one of `width` features.

        Raises:
            ProfileError: a node does not.
        """
        compares = self.feature != LEAF
        nodes = self.count + 2 * int(compares.sum())
        if not 0 < self.count <= MOST_TREES or not len(self.feature) == len(self.number) == nodes:
            raise ProfileError("the nodes of the trees do not fit together")
        if not ((self.feature >= LEAF) & (self.feature < width)).all():
            raise ProfileError("the nodes of the trees compare features that there are not")
        if not (self.left > np.arange(nodes))[compares].all():
            raise ProfileError("the nodes of the trees do not lead to leaves")
        return self


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of grown trees, each tree's in preorder: the left child of a node is the next.

    Attributes:
        feature: feature that a node compares, LEAF for a leaf, (nodes,).
        number: threshold of a node, value of a leaf, (nodes,).
        right: index of the right child, (nodes,).
        roots: index of each tree's root, (trees,).
    """

    feature: npt.NDArray[np.int64]
    number: npt.NDArray[np.float64]
    right: npt.NDArray[np.int64]
    roots: npt.NDArray[np.int64]


def joined(low: Nodes, high: Nodes, feature: int, number: float) -> Nodes:
    """Trees that compare one feature at their roots and go on with a tree of either side; as many of both.

    Args:
        low: trees for rows whose feature is at most the number.
        high: trees for rows whose feature is larger.
        feature: feature that the roots compare.
        number: threshold of the roots.
    """
    sides = [_parts(side) for side in (low, high)]
    made: list[tuple[Any, ...]] = []
    roots, start = [], 0
    for left, right in zip(*sides, strict=True):
        roots.append(start)
        behind = start + 1 + len(left[0])
        made.append(([feature], [number], [behind]))
        made += [(of, value, place + at) for (of, value, place), at in ((left, start + 1), (right, behind))]
        start = behind + len(right[0])
    features, numbers, places = (np.concatenate(column) for column in zip(*made, strict=True))
    return Nodes(features, numbers, places, np.array(roots))


def _parts(nodes: Nodes) -> list[tuple[Any, ...]]:
    """Features, numbers and right children of each tree, as of its root."""
    ends = np.append(nodes.roots[1:], len(nodes.feature))
    spans = [slice(*span) for span in zip(nodes.roots, ends, strict=True)]
    return [(nodes.feature[span], nodes.number[span], nodes.right[span] - span.start) for span in spans]


def of_regressors(regressors: Sequence[Any]) -> Nodes:
    """Mean of scikit-learn's HistGradientBoostingRegressors, fitted to finite features.

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
    roots = np.cumsum([0, *map(len, grown[:-1])])
    own_root = np.repeat(roots, [len(some) for some in grown])
    return Nodes(
        feature=np.where(leaf, LEAF, nodes["feature_idx"]).astype(np.int64),
        number=np.where(leaf, start + nodes["value"] / len(regressors), nodes["num_threshold"]),
        right=own_root + np.where(leaf, 0, nodes["right"].astype(np.int64)),
        roots=roots,
    )


def compact(nodes: Nodes) -> Trees:
    """Trees level by level, with thresholds and leaf values in 16 bits."""
    levels, level = [], nodes.roots
    while len(level):
        levels.append(level)
        inner = level[nodes.feature[level] != LEAF]
        level = np.stack([inner + 1, nodes.right[inner]], 1).ravel()
    order = np.concatenate(levels)
    feature, number = nodes.feature[order], nodes.number[order]
    leaf = feature == LEAF
    shared = float(np.median(number[leaf]))
    most = float(np.abs(number[leaf] - shared).max())
    unit = most / np.iinfo(np.int16).max if most else 1.0
    steps = np.where(leaf, np.round((number - shared) / unit), threshold_steps(number))
    return Trees(len(nodes.roots), feature.astype(np.int8), steps.astype(np.int16), unit, shared * len(nodes.roots))


def threshold_steps(number: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Thresholds of scaled features in steps, rounded as by `in_steps`: what was at most a threshold still is."""
    limits = np.iinfo(np.int16)
    return np.clip(np.round(number / STEP), limits.min, limits.max)
