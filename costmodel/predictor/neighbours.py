"""Recall of measured kernels: neighbours in feature space and their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from costmodel.predictor.network import OUTLYING, Array, Rows, Steps

ALIKE = 5
"""Number of nearest measured kernels whose median workspace is predicted."""
STEP = OUTLYING / np.iinfo(np.int16).max
"""Resolution of the measured kernels' scaled features, which are stored as 16-bit multiples of it.

It is a fiftieth of the distance below which two kernels are equal, and halves the file."""
STEP32 = np.float32(STEP)
EXACT = 1e-2
"""Distance of scaled vectors below which two kernels are equal."""
WEIGHED = 8
"""Number of nearest measured kernels whose residuals correct a prediction."""
PRIOR_WEIGHT = 0.3
"""Weight of a residual of 0, against 1 for a measured kernel at distance 0."""


def in_steps(x: Array) -> Steps:
    """Scaled features as multiples of STEP, rounded."""
    return np.round(np.clip(x, -OUTLYING, OUTLYING) / STEP).astype(np.int16)


def places_of(memory: Steps) -> Array:
    """Projections of measured kernels on one direction of scaled features, (rows,)."""
    parts = portions(np.arange(len(memory)), memory.shape[1])
    return np.concatenate([memory[rows].astype(np.float32) @ _direction(memory.shape[1]) for rows in parts]) * STEP32


def _direction(features: int) -> Array:
    """Vector of length 1 that is parallel to no feature's axis, (features,)."""
    direction = np.cos(np.arange(features, dtype=np.float32))
    return np.asarray(direction / np.linalg.norm(direction), dtype=np.float32)


def recall(x: Array, memory: Steps, places: Array, values: Sequence[Array]) -> tuple[list[Array], Array]:
    """Means of values over the measured kernels equal to each row of x, and the distance to the nearest of them.

    NaN where no measured kernel is equal. Projections of two vectors are no further apart than the vectors, so only
    kernels with nearby projections are compared.
    """
    asked = x @ _direction(x.shape[1])
    order = np.argsort(places)
    reach = 1.01 * EXACT  # a projection is rounded
    first, last = (np.searchsorted(places[order], asked + side) for side in (-reach, reach))
    *means, nearest = (np.full(len(x), np.nan, dtype=np.float32) for _ in (*values, "nearest"))
    for row, (start, stop) in enumerate(zip(first, last, strict=True)):
        close = order[start:stop]
        distance = np.linalg.norm(memory[close] * STEP32 - x[row], axis=1)
        equal = close[distance < EXACT]
        if len(equal):
            nearest[row] = distance.min()
            for mean, value in zip(means, values, strict=True):
                mean[row] = value[equal].mean()
    return means, nearest


def distances(x: Array, memory: Array) -> Array:
    """Euclidean distances, (rows of x, rows of memory)."""
    squares = (x**2).sum(1)[:, None] + (memory**2).sum(1)[None, :]
    squares -= 2.0 * x @ memory.T
    np.maximum(squares, 0.0, out=squares)
    return np.asarray(np.sqrt(squares, out=squares))


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


def weigh(distance: Array, residual: Array, reach: float) -> tuple[Array, Array]:
    """Weighted mean residual of the nearest measured kernels, and the distance to the nearest.

    Nadaraya-Watson regression with a Gaussian kernel of width `reach` and one pseudo-observation of residual 0.
    """
    count = min(WEIGHED, distance.shape[1])
    nearest = np.argpartition(distance, count - 1, axis=1)[:, :count]
    near = np.take_along_axis(distance, nearest, axis=1)
    weight = np.exp(-0.5 * (near / reach) ** 2)
    correction = (weight * residual[nearest]).sum(1) / (weight.sum(1) + PRIOR_WEIGHT)
    return correction.astype(np.float32), near.min(1)


AT_ONCE = 1 << 21
"""Distances that are computed at once: some tens of megabytes with their intermediate results."""
