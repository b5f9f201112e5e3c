"""Fits of a group of kernels: the predictor's own, and the baselines of every score table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from costmodel.predictor.neighbours import distances, portions
from costmodel.predictor.network import Array, scaled
from costmodel.training.folds import Folds, Rows
from costmodel.training.kernel_models import TrainingSettings, fit_group, moments
from costmodel.training.tables import Table

Predict = Callable[[Table], Array]
"""Rows -> predicted targets, (rows,)."""
Fit = Callable[[Table], Predict]
"""Training rows -> a predictor of other rows."""


def cross_validate(table: Table, folds: Folds, fit: Fit, jobs: int = 1) -> Array:
    """Predicted target of each row by a fit to the rows that its fold may learn from; `jobs` folds at once."""
    from joblib import Parallel, delayed

    found = Parallel(n_jobs=jobs)(delayed(_predicted)(table, fit, learns, tested) for learns, tested in folds)
    prediction = np.zeros(len(table.time_us), dtype=np.float32)
    for (_, tested), values in zip(folds, found, strict=True):
        prediction[tested] = values
    return prediction


def _predicted(table: Table, fit: Fit, learns: Rows, tested: Rows) -> Array:
    return fit(table.take(learns))(table.take(tested))


def network_fit(settings: TrainingSettings) -> Fit:
    """The predictor's fit: networks and trees, corrected by residuals of measured neighbours."""

    def fit(table: Table) -> Predict:
        model = fit_group(table, settings)

        def predict(test: Table) -> Array:
            return model.log_ratio(scaled(test.raw, model.mean, model.scale))[0]

        return predict

    return fit


def _constant_fit(table: Table) -> Predict:
    """Geometric mean of utilisation for every kernel."""
    mean = float(table.target.mean())
    return lambda test: np.full(len(test.time_us), mean, dtype=np.float32)


def _roofline_fit(_table: Table) -> Predict:
    """Roofline bound as the time."""
    return lambda test: np.zeros(len(test.time_us), dtype=np.float32)


def _neighbour_fit(table: Table) -> Predict:
    """Utilisation of the nearest measured kernel in scaled features."""
    mean, scale = moments(table)

    def predict(test: Table) -> Array:
        x, measured = (test.raw - mean) / scale, (table.raw - mean) / scale
        parts = portions(np.arange(len(x)), len(measured))
        nearest = [distances(x[rows], measured).argmin(1) for rows in parts]
        return np.asarray(table.target[np.concatenate(nearest)], dtype=np.float32)

    return predict


def _boosting_fit(table: Table) -> Predict:
    """Gradient-boosted trees on the same features and target."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    trees = HistGradientBoostingRegressor(max_iter=200, learning_rate=0.1, max_leaf_nodes=24, l2_regularization=1.0)
    trees.fit(table.raw, table.target)
    return lambda test: np.asarray(trees.predict(test.raw), dtype=np.float32)


BASELINES: Mapping[str, Fit] = {
    "constant": _constant_fit,
    "roofline": _roofline_fit,
    "neighbour": _neighbour_fit,
    "boosting": _boosting_fit,
}
"""Baselines of every score table."""


AGAINST_BASE: Mapping[str, Fit] = {"base": _roofline_fit, "base scaled": _constant_fit}
"""Baselines of a predictor with a base: the base alone, and times one ratio a group."""


def score_group(table: Table, prediction: Array) -> dict[str, float]:
    """Relative errors of predicted times, of all kernels and of those of at least LARGE_US."""
    error = np.abs(np.exp(prediction - table.target) - 1)
    large = table.time_us >= LARGE_US
    return {
        "kernels": len(error),
        "mean_error": float(error.mean()),
        "median_error": float(np.median(error)),
        "within_5": float((error < 0.05).mean()),
        "within_10": float((error < 0.10).mean()),
        "large_median_error": float(np.median(error[large])) if large.any() else 0.0,
        "large_within_5": float((error[large] < 0.05).mean()) if large.any() else 0.0,
        "large_within_10": float((error[large] < 0.10).mean()) if large.any() else 0.0,
    }


LARGE_US = 5.0
"""Least time of kernels that are scored separately, as launch noise affects them less."""
