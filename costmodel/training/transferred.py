"""Kernels measured on a device and predicted by another device's predictor -> what is different, by group.

Boosted trees learn the logarithm of the measured time over the base's prediction, with that prediction among the
features; residuals of measured neighbours correct them. A group with few measured kernels has one ratio, drawn towards
that of all kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from costmodel.features import Roofline, group_of
from costmodel.features.scalars import log2_of
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.group_model import GroupModel
from costmodel.predictor.neighbours import in_steps
from costmodel.predictor.network import Array, scaled
from costmodel.predictor.predictor import LOG_BASE_US, Base, Predictor
from costmodel.predictor.recall import Recall
from costmodel.predictor.trees import LEAF, Trees, compact, of_regressors
from costmodel.training.cross_fit import CrossFit
from costmodel.training.folds import Folds
from costmodel.training.kernel_models import EDGES_US, gaps, interval_widths, moments
from costmodel.training.tables import Table

LEAST_LEARNT = 60
"""Fewest measured kernels of a group for trees of its own."""
PRIOR_ROWS = 10
"""Measured kernels that the ratio of all kernels counts as, in a group with few."""
OPTIONS: Mapping[str, Any] = {
    "loss": "absolute_error",
    "max_iter": 120,
    "learning_rate": 0.08,
    "max_leaf_nodes": 16,
    "min_samples_leaf": 8,
    "l2_regularization": 1.0,
    "max_features": 0.5,
    "early_stopping": False,
}
REACH = 0.4
"""Width of the Gaussian weights of residuals, in scaled features: twice that of a predictor without a base, as fewer
kernels are measured and the difference of two devices is smoother than their times."""
MARGIN = 0.2
"""Ratios beyond the measured ones that are still predicted."""


def relative_to_base(tables: Mapping[str, Table], kernels: Sequence[Kernel], base: Base) -> dict[str, Table]:
    """Tables whose times are relative to the base's predictions, which are among the features.

    Args:
        tables: tables of the kernels, each group's in their order.
        kernels: the kernels.
        base: the base.
    """
    estimates = base.predictor.predict(kernels, [0.5] * len(kernels))
    known: dict[str, list[Estimate]] = {}
    for kernel, estimate in zip(kernels, estimates, strict=True):
        known.setdefault(group_of(kernel), []).append(estimate)
    return {group: _relative(table, known[group]) for group, table in tables.items()}


def _relative(table: Table, estimates: Sequence[Estimate]) -> Table:
    base_us = np.array([one.us for one in estimates])
    host_us = np.array([one.host_us for one in estimates], dtype=np.float32)  # of the host that costs are fitted to
    column = np.array([[log2_of(us)] for us in base_us], dtype=np.float32)
    raw = np.concatenate([table.raw, column], axis=1)
    return replace(table, names=(*table.names, LOG_BASE_US), raw=raw, bound_us=base_us, host_us=host_us)


def fit_difference(table: Table, shared: float, seed: int = 0, out_of_fold: Array | None = None) -> GroupModel:
    """Model of one group relative to its base.

    Args:
        table: result of `relative_to_base`.
        shared: median logarithm of time over the base's prediction, of all groups.
        seed: seed of the trees.
        out_of_fold: out-of-fold predictions of the target for the intervals, (rows,).
    """
    mean, scale = moments(table)
    x = scaled(table.raw, mean, scale)
    rows = len(x)
    trees = _grow(x, table.target, seed) if rows >= LEAST_LEARNT else constant(_drawn(table.target, shared))
    seen = np.append(table.target, shared)
    most = np.array([[seen.min() - MARGIN, seen.max() + MARGIN]], dtype=np.float32)
    model = GroupModel(
        names=table.names,
        mean=mean,
        scale=scale,
        networks=(),
        trees=trees,
        sample=in_steps(x),
        residual=np.zeros(rows, dtype=np.float32),
        reach=REACH,
        edges=np.array(EDGES_US, dtype=np.float32),
        widths=np.zeros(len(EDGES_US) + 1, dtype=np.float32),
        far=2.0 * float(np.quantile(gaps(x, seed), 0.98)) if rows > 1 else 1.0,
        recall=Recall.of(table.hashes, table.time_us, table.host_us, table.workspace_bytes),
        workspace=table.workspace,
        limits=most,
    )
    residual = (table.target - model.expected(x)).astype(np.float32)
    error = np.abs(residual if out_of_fold is None else table.target - out_of_fold)
    return replace(model, residual=residual, widths=interval_widths(error, table.time_us))


def _grow(x: Array, target: Array, seed: int) -> Trees:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # several threads wait for one another for longer than they work, on tables so small
        grown = HistGradientBoostingRegressor(random_state=seed, **OPTIONS).fit(x, target)
    return compact(of_regressors([grown]))


def constant(value: float) -> Trees:
    """Trees that predict one value."""
    return Trees(1, np.array([LEAF], dtype=np.int8), np.zeros(1, dtype=np.int16), unit=1.0, base=value)


def _drawn(target: Array, shared: float) -> float:
    """Median of a few logarithms, drawn towards that of all groups."""
    share = len(target) / (len(target) + PRIOR_ROWS)
    return share * float(np.median(target)) + (1 - share) * shared


def transfer(
    tables: Mapping[str, Table],
    folds: Mapping[str, Folds],
    roofline: Roofline,
    multiprocessors: int,
    base: Base,
    seed: int = 0,
) -> CrossFit:
    """Learn the difference from the base, by group and fold, as `cross_fit` trains from nothing.

    Args:
        tables: results of `relative_to_base`, by group.
        folds: folds of each table.
        roofline: ceilings of the device.
        multiprocessors: multiprocessors of the device.
        base: the base.
        seed: seed of the trees.
    """
    shared = float(np.median(np.concatenate([table.target for table in tables.values()])))
    by_fold: dict[int, dict[str, GroupModel]] = {}
    out_of_fold, trees_alone = ({group: np.zeros_like(table.target) for group, table in tables.items()} for _ in "ab")
    for group, table in tables.items():
        for fold, learns in enumerate(folds[group].learns):
            tested = folds[group].tests == fold
            if not learns.any():
                out_of_fold[group][tested] = trees_alone[group][tested] = shared
                continue
            model = by_fold.setdefault(fold, {})[group] = fit_difference(table.take(learns), shared, seed)
            if tested.any():
                x = scaled(table.raw[tested], model.mean, model.scale)
                out_of_fold[group][tested], trees_alone[group][tested] = model.log_ratio(x)[0], model.expected(x)
    final = {group: fit_difference(table, shared, seed, out_of_fold[group]) for group, table in tables.items()}
    predictors = {fold: Predictor(groups, roofline, multiprocessors, base) for fold, groups in by_fold.items()}
    return CrossFit(Predictor(final, roofline, multiprocessors, base), predictors, out_of_fold, trees_alone)
