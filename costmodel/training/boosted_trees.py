"""Measured kernels -> boosted trees that predict device and host times, grown by scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from costmodel.predictor.group_model import UNMEASURED
from costmodel.predictor.network import Array
from costmodel.predictor.trees import Nodes, Trees, compact, joined, of_regressors

Rows = npt.NDArray[np.bool_]

HOST_TREES = 2
"""Boosted models whose mean predicts host times; each tries other random features at its splits."""
MOST_HOST_ROWS = 120_000
"""Most rows for trees of host times, chosen at random, as many rows differ only in sizes."""
SEVERAL_LAUNCHES: Mapping[str, Any] = {"loss": "squared_error", "max_leaf_nodes": 127, "min_samples_leaf": 10}
"""Options of trees for calls of which a few launch several kernels and take many times as long.

One model with so many leaves is enough."""


def grow_host_trees(x: Array, host_us: Array, seed: int = 0, several_launches: bool = False) -> Trees | None:
    """Trees for the logarithm of a launch's host time; None if none was measured.

    A single measured call is noisy, and trees average similar ones. On held-out families they predict better than
    networks, the nearest measured kernels, or medians by kind of call.

    Args:
        x: scaled features, (rows, features).
        host_us: measured host times, (rows,), UNMEASURED where there is none; or empty.
        seed: seed of the features that are tried at a split.
        several_launches: whether some calls launch a kernel for each group of channels, as cuDNN does for some
        convolutions in half precision, 4.8 us each. Absolute loss ignores such rare calls (their logarithms are 0.85
        off, against 0.23 with squared loss); without them, squared loss is up to a quarter worse.
    """
    known = np.flatnonzero(host_us != UNMEASURED)
    if not len(known):
        return None
    if len(known) > MOST_HOST_ROWS:
        known = np.sort(np.random.default_rng(seed).choice(known, MOST_HOST_ROWS, replace=False))
    options = {"learning_rate": 0.05, "max_features": 0.3, **(SEVERAL_LAUNCHES if several_launches else {})}
    grown = [_regressor(400, seed + number, **options) for number in range(1 if several_launches else HOST_TREES)]
    return compact(of_regressors([one.fit(x[known], np.log(host_us[known])) for one in grown]))


def grow_device_trees(x: Array, target: Array, count: int, seed: int = 0, separate: int | None = None) -> Trees:
    """Trees for the logarithm of time over bound. Their mean with networks is better than either.

    Args:
        x: scaled features, (rows, features).
        target: logarithm of time over bound, (rows,).
        count: number of trees.
        seed: seed of the features that are tried at a split.
        separate: index of a feature on whose sides of the mean separate trees are grown, if each has LEAST_SEPARATE
            rows. A library has other kernels in half precision than in single: separate trees predict held-out
            convolutions 7 % better in half precision, 4 % in single.
    """
    options = {"min_samples_leaf": 10, "l2_regularization": 1.0, "max_features": 0.4}

    def grow(rows: Rows) -> Nodes:
        grown = _regressor(count, seed, max_leaf_nodes=LEAVES, learning_rate=0.1, **options)
        return of_regressors([grown.fit(x[rows], target[rows])])

    low = x[:, separate] <= 0.0 if separate is not None else np.zeros(len(x), dtype=bool)
    if separate is None or min(low.sum(), (~low).sum()) < LEAST_SEPARATE:
        return compact(grow(np.ones(len(x), dtype=bool)))
    return compact(joined(grow(low), grow(~low), separate, 0.0))


LEAST_SEPARATE = 1000
"""Fewest rows on either side for separate trees."""
LEAVES = 511
"""Leaves of a tree for device times, which jump where a library chooses another kernel.

For convolutions of held-out shapes and families, 255 leaves are 4 % worse, 127 are 8 %, and 63 with squared loss 20
%."""


def _regressor(count: int, seed: int, **options: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    options = {"loss": "absolute_error", "early_stopping": False} | options
    return HistGradientBoostingRegressor(max_iter=count, random_state=seed, **options)
