"""Measured kernels near a kernel in feature space, and their weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from costmodel.predictor.network import OUTLYING, Array, Rows, Steps

ALIKE = 5
"""Number of nearest measured kernels whose median workspace is predicted."""
STEP = OUTLYING / np.iinfo(np.int16).max
"""Resolution of scaled features that are stored as 16-bit multiples of it: a fiftieth of EXACT."""
STEP32 = np.float32(STEP)
EXACT = 1e-2
"""Distance of scaled vectors below which two kernels are equal."""
PRIOR_WEIGHT = 0.3
"""Weight of a residual of 0, against 1 for a measured kernel at distance 0."""
WEIGHTLESS = 4.0
"""Distance in widths of the Gaussian weights beyond which a residual counts for nothing: its weight is 3e-4."""


def in_steps(x: Array) -> Steps:
    """Scaled features as multiples of STEP, rounded."""
    return np.round(np.clip(x, -OUTLYING, OUTLYING) / STEP32).astype(np.int16)


def distances(x: Array, memory: Array) -> Array:
    """Euclidean distances, (rows of x, rows of memory)."""
    squares = squared_distances(x, memory)
    return np.asarray(np.sqrt(squares, out=squares))


def squared_distances(x: Array, memory: Array, norms: Array | None = None) -> Array:
    """Squares of Euclidean distances, (rows of x, rows of memory).

    Args:
        x: vectors.
        memory: vectors.
        norms: squares of the lengths of those of `memory`, if they are known.
    """
    squares = x @ (-2.0 * memory.T)
    squares += (x**2).sum(1)[:, None]
    squares += ((memory**2).sum(1) if norms is None else norms)[None, :]
    np.maximum(squares, 0.0, out=squares)
    return np.asarray(squares, dtype=np.float32)


def portions(rows: Rows, numbers: int) -> Iterator[Rows]:
    """Consecutive parts of the rows, with at most AT_ONCE values each if a row takes `numbers` of them."""
    count = max(1, AT_ONCE // numbers)
    return (rows[start : start + count] for start in range(0, len(rows), count))


def usual(distance: Array, value: Array) -> Array:
    """Value of an equal measured kernel, else the median of the ALIKE nearest; (rows,)."""
    rows, count = np.arange(len(distance)), min(ALIKE, distance.shape[1])
    nearest, first = np.argpartition(distance, count - 1, axis=1)[:, :count], distance.argmin(axis=1)
    equal = distance[rows, first] < EXACT
    return np.asarray(np.where(equal, value[first], np.median(value[nearest], axis=1)), dtype=np.float32)


def corrections(x: Array, measured: Array, residual: Array, reach: float) -> tuple[Array, Array]:
    """Weighted mean residual of the measured kernels around each row of x, and the distance to the nearest.

    Nadaraya-Watson regression with a Gaussian kernel of width `reach` and one pseudo-observation of residual 0. A row
    equal to a measured kernel takes its residual.

    Args:
        x: scaled features, (rows, features).
        measured: scaled features of measured kernels, (measured, features).
        residual: residual of each measured kernel, (measured,).
        reach: width of the Gaussian weights.
    """
    norms = (measured**2).sum(1)
    correction, distance = (np.zeros(len(x), dtype=np.float32) for _ in range(2))
    for rows in portions(np.arange(len(x)), len(measured)):
        correction[rows], distance[rows] = _corrections(x[rows], measured, norms, residual, reach)
    return correction, distance


def _corrections(x: Array, measured: Array, norms: Array, residual: Array, reach: float) -> tuple[Array, Array]:
    squares = squared_distances(x, measured, norms)
    nearest = squares.argmin(1)
    distance = np.linalg.norm(x - measured[nearest], axis=1)  # a difference of squares is inexact for near kernels
    row, column = np.nonzero(squares < (WEIGHTLESS * reach) ** 2)
    weight = np.exp(-0.5 / reach**2 * squares[row, column])
    total = np.bincount(row, weight, minlength=len(squares)) + PRIOR_WEIGHT
    mean = np.bincount(row, weight * residual[column], minlength=len(squares)) / total
    found = np.where(distance < EXACT, residual[nearest], mean)
    return found.astype(np.float32), distance.astype(np.float32)


def spread_sample(x: Array, most: int, seed: int) -> npt.NDArray[np.int64]:
    """Places of at most `most` rows, drawn at random, ascending."""
    if len(x) <= most:
        return np.arange(len(x))
    return np.sort(np.random.default_rng(seed).choice(len(x), most, replace=False))


AT_ONCE = 1 << 22
"""Distances that are computed at once: some tens of megabytes with their intermediate results."""
