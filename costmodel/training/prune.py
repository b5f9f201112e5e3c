"""Cost-complexity pruning of boosted trees: fewer nodes for nearly the same sums."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from costmodel.predictor.network import Array
from costmodel.predictor.trees import LEAF, Trees

MOST_ROWS = 12_000
"""Most rows that count how often a leaf is reached."""
STEPS = 14
"""Halvings of the logarithmic interval in which the price of a leaf is sought: to a thousandth."""
LEAST_PRICE = 1e-9
"""Lower end of that interval, relative to the largest spread below a node."""
Values = npt.NDArray[np.float64]


def prune(trees: Trees, x: Array, tolerance: float, seed: int = 0) -> Trees:
    """Trees with the fewest leaves whose sums change within a tolerance.

    A node becomes a leaf where that costs less than its leaves at one price for all trees, which is optimal for each
    price (Breiman et al., "Classification and regression trees", 1984, chapter 3). The loss is not the error of the
    trees but their change: the squared difference of the leaf values to their mean, added over trees as if the trees'
    changes were independent.

    Args:
        trees: grown trees.
        x: scaled features that they were grown on, (rows, features).
        tolerance: root mean square of the change of the sums, if the changes of trees were independent. Those of the
            trees of one boosted model are not, and the sums change by up to three times as much.
        seed: seed of the choice of at most MOST_ROWS rows.
    """
    some = x[np.random.default_rng(seed).permutation(len(x))[:MOST_ROWS]]
    reached = np.zeros(len(trees.feature))
    for _, leaves in trees.ends(some):
        reached += np.bincount(leaves, minlength=len(reached))
    value = np.where(trees.feature == LEAF, trees.number * trees.unit, 0.0)
    levels = _levels(trees)
    mean, spread = _moments(trees, levels, reached / len(some), value)
    high = max(float(spread.max()), 1e-30)
    low = LEAST_PRICE * high
    for _ in range(STEPS):
        price = math.sqrt(low * high)
        ends = _ends(trees, levels, spread, price)
        low, high = (low, price) if _change(trees, levels, ends, spread) > tolerance**2 else (price, high)
    ends = _ends(trees, levels, spread, low)
    return _cut(trees, levels, ends, mean)


def _levels(trees: Trees) -> list[slice]:
    """Nodes of each level."""
    found, start, end = [], 0, trees.count
    while start < end:
        found.append(slice(start, end))
        inner = int((trees.feature[start:end] != LEAF).sum())
        start, end = end, end + 2 * inner
    return found


def _inner(trees: Trees, level: slice) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int32]]:
    """Nodes of a level that compare, and their left children."""
    nodes = level.start + np.flatnonzero(trees.feature[level] != LEAF)
    return nodes, trees.left[nodes]


def _moments(trees: Trees, levels: list[slice], reached: Values, value: Values) -> tuple[Values, Values]:
    """Mean of the leaf values below each node, weighted by the rows that reach them, and their squared spread."""
    weight, mean, spread = reached.copy(), value.copy(), np.zeros(len(value))
    for level in reversed(levels):
        nodes, left = _inner(trees, level)
        both = weight[left] + weight[left + 1]
        share = np.divide(weight[left], both, out=np.full(len(nodes), 0.5), where=both > 0)
        apart = mean[left] - mean[left + 1]
        weight[nodes], mean[nodes] = both, share * mean[left] + (1 - share) * mean[left + 1]
        spread[nodes] = spread[left] + spread[left + 1] + both * share * (1 - share) * apart**2
    return mean, spread


def _ends(trees: Trees, levels: list[slice], spread: Values, price: float) -> npt.NDArray[np.bool_]:
    """Nodes that are better leaves at a price of a leaf."""
    best, ends = np.full(len(spread), price), trees.feature == LEAF
    for level in reversed(levels):
        nodes, left = _inner(trees, level)
        kept, cut = best[left] + best[left + 1], spread[nodes] + price
        best[nodes], ends[nodes] = np.minimum(kept, cut), cut <= kept
    return np.asarray(ends)


def _reachable(trees: Trees, levels: list[slice], ends: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Nodes above which no node is a leaf."""
    alive = np.zeros(len(ends), dtype=bool)
    alive[: trees.count] = True
    for level in levels:
        nodes, left = _inner(trees, level)
        goes_on = alive[nodes] & ~ends[nodes]
        alive[left], alive[left + 1] = goes_on, goes_on
    return alive


def _change(trees: Trees, levels: list[slice], ends: npt.NDArray[np.bool_], spread: Values) -> float:
    """Mean square of the change of the sums."""
    return float(spread[ends & _reachable(trees, levels, ends)].sum())


def _cut(trees: Trees, levels: list[slice], ends: npt.NDArray[np.bool_], mean: Values) -> Trees:
    """Trees that end where they should."""
    alive = _reachable(trees, levels, ends)
    number = np.where(ends, np.round(mean / trees.unit), trees.number)[alive].astype(np.int16)
    feature = np.where(ends, LEAF, trees.feature)[alive].astype(np.int8)
    return Trees(trees.count, feature, number, trees.unit, trees.base)
