"""Measured kernels -> boosted trees that tell the time of others, on the device and on the host; by scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.predictor.group_model import UNMEASURED
from costmodel.predictor.network import Array
from costmodel.predictor.trees import Trees, joined, of_regressors

Rows = npt.NDArray[np.bool_]

HOST_TREES = 2
"""So many boosted models tell host times together; features are chosen by lot at every split, each time others."""
MOST_HOST_ROWS = 120_000
"""Trees of host times are grown on so many rows, by lot: the host does not look at the sizes that others differ by."""
LOOPED: Mapping[str, Any] = {"loss": "squared_error", "max_leaf_nodes": 127, "min_samples_leaf": 10}
"""Of trees for calls of which a few take many times as long as the others, and not by chance. One model of so many
leaves is enough."""


def grow_host_trees(x: Array, host_us: Array, seed: int = 0, looped: bool = False) -> Trees | None:
    """The logarithm of what the host takes to issue a kernel, by trees grown on those of which it was measured.

    The time of one call alone is known roughly only: what is alike is averaged. With families left out, trees tell it
    better than networks, the nearest measured kernels, or medians by kind of call do. None if nothing was measured.

    Args:
        x: scaled features, (rows, features).
        host_us: measured times, (rows,), UNMEASURED for those that were not; or empty.
        seed: of the features that are tried at a split.
        looped: whether some calls launch a kernel for each group of channels, as cuDNN does for some convolutions in
            half precision, 4.8 us each: trees under absolute loss pass over such rare ones (their logarithms are 0.85
            off, and 0.23 under squared loss). Where there are none, squared loss is up to a quarter worse.
    """
    known = np.flatnonzero(host_us != UNMEASURED)
    if not len(known):
        return None
    if len(known) > MOST_HOST_ROWS:
        known = np.sort(np.random.default_rng(seed).choice(known, MOST_HOST_ROWS, replace=False))
    options = {"learning_rate": 0.05, "max_features": 0.3, **(LOOPED if looped else {})}
    grown = [_regressor(400, seed + number, **options) for number in range(1 if looped else HOST_TREES)]
    return of_regressors([one.fit(x[known], np.log(host_us[known])) for one in grown])


def grow_device_trees(x: Array, target: Array, count: int, seed: int = 0, apart: int | None = None) -> Trees:
    """The logarithm of time over bound by trees. They err elsewhere than networks do: the mean is better than either.

    Args:
        x: scaled features, (rows, features).
        target: logarithm of time over bound, (rows,).
        count: of trees.
        seed: of the features that are tried at a split.
        apart: a feature on whose either side other trees are grown, the sides being divided at its mean. In half
            precision a library has other kernels than in single: of convolutions left out, trees grown apart tell those
            of half precision 7 % better, the others 4 %. Sides of fewer than LEAST_APART rows are not worth it.
    """
    options = {"min_samples_leaf": 10, "l2_regularization": 1.0, "max_features": 0.4}

    def grow(rows: Rows) -> Trees:
        grown = _regressor(count, seed, max_leaf_nodes=LEAVES, learning_rate=0.1, **options)
        return of_regressors([grown.fit(x[rows], target[rows])])

    low = x[:, apart] <= 0.0 if apart is not None else np.zeros(len(x), dtype=bool)
    if apart is None or min(low.sum(), (~low).sum()) < LEAST_APART:
        return grow(np.ones(len(x), dtype=bool))
    return joined(grow(low), grow(~low), apart, 0.0)


LEAST_APART = 1000
"""So many rows on either side, or trees are grown on both together."""
LEAVES = 511
"""Of a device's tree: a library chooses among many kernels, so times leap. For convolutions of shapes and families left
out 255 leaves are 4 % worse, 127 are 8 %, and 63 under squared loss are 20 %."""


def _regressor(count: int, seed: int, **options: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    options = {"loss": "absolute_error", "early_stopping": False} | options
    return HistGradientBoostingRegressor(max_iter=count, random_state=seed, **options)
