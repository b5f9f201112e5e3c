"""Fit of Gaussian processes to the residuals of whole models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from costmodel.predictor.network import Array, scaled
from costmodel.timeline.residual_gp import GaussianProcess, ResidualModel, squares

LEAST_MODELS = 30
"""Fewest measured cases of a mode for a process."""


@dataclass(frozen=True)
class Residuals:
    """Residuals of measured cases.

    Attributes:
        properties: properties of each case, (cases, properties).
        logs: logarithms of measured over predicted latency by mode, (cases,); NaN where it was not measured.
        keys: identity of each case; several processes may have measured one. Empty if all differ.
    """

    properties: Array
    logs: Mapping[str, npt.NDArray[np.float64]]
    keys: tuple[object, ...] = ()

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each property, 1 where it does not vary."""
        deviation = self.properties.std(0)
        return self.properties.mean(0), np.where(deviation > 1e-6, deviation, 1.0).astype(np.float32)

    def take(self, rows: Sequence[int] | npt.NDArray[np.bool_]) -> Residuals:
        """Residuals of some of the cases."""
        chosen = np.arange(len(self.properties))[np.asarray(rows)]
        keys = tuple(self.keys[row] for row in chosen) if self.keys else ()
        return Residuals(self.properties[chosen], {mode: logs[chosen] for mode, logs in self.logs.items()}, keys)

    def merged(self) -> Residuals:
        """Residuals with every case once, the median of its processes.

        Processes of one model share its error, which would look like correlation between models.
        """
        if not self.keys:
            return self
        rows: dict[object, list[int]] = {}
        for row, key in enumerate(self.keys):
            rows.setdefault(key, []).append(row)
        first = [some[0] for some in rows.values()]
        logs = {mode: np.array([_middle(found[some]) for some in rows.values()]) for mode, found in self.logs.items()}
        return Residuals(self.properties[first], logs)


def _middle(logs: npt.NDArray[np.float64]) -> float:
    """Median of the finite values; NaN if there are none."""
    known = logs[np.isfinite(logs)]
    return float(np.median(known)) if len(known) else math.nan


def fit(cases: Residuals) -> ResidualModel:
    """Residual model with the hyperparameters of the largest marginal likelihood, for modes with LEAST_MODELS cases.

    Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), section 5.4.
    """
    cases = cases.merged()
    found = {mode: _likeliest(cases, logs) for mode, logs in cases.logs.items()}
    return condition(cases, {mode: process for mode, process in found.items() if process is not None})


def _likeliest(cases: Residuals, logs: npt.NDArray[np.float64]) -> GaussianProcess | None:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    known = np.isfinite(logs)
    if known.sum() < LEAST_MODELS:
        return None
    start = ConstantKernel(0.05**2, (1e-6, 1.0)) * RBF(2.0, (0.3, 30.0)) + WhiteKernel(0.05**2, (1e-5, 1.0))
    x = scaled(cases.properties[known], *cases.moments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a hyperparameter at its bound is fine
        kernel = GaussianProcessRegressor(start, alpha=0.0).fit(x, logs[known]).kernel_
    return GaussianProcess(
        math.sqrt(kernel.k1.k1.constant_value), kernel.k1.k2.length_scale, math.sqrt(kernel.k2.noise_level)
    )


def condition(cases: Residuals, processes: Mapping[str, GaussianProcess]) -> ResidualModel:
    """Residual model of processes conditioned on the cases.

    Args:
        cases: residuals of measured cases.
        processes: processes by mode, whose weights are replaced.
    """
    cases = cases.merged()
    mean, scale = cases.moments
    models = scaled(cases.properties, mean, scale)
    square = squares(models, models).astype(np.float64)
    conditioned = {}
    for mode, process in processes.items():
        known = np.isfinite(cases.logs[mode])
        covariance = process.covariance(square[np.ix_(known, known)]) + process.noise**2 * np.eye(known.sum())
        weights = np.zeros(len(models), dtype=np.float32)
        weights[known] = np.linalg.solve(covariance, cases.logs[mode][known])
        conditioned[mode] = replace(process, weights=weights)
    return ResidualModel(mean, scale, models, conditioned)
