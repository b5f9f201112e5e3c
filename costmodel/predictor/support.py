"""Support of a prediction: whether kernels of its regime were measured at all.

A distance sums over all features, so a kernel may be near measured ones that a library runs by another algorithm. A
convolution of 64 to 3 channels is near those of 64 to 16, of which there are thousands, and takes several times as long
for its arithmetic. So kernels must also be measured that agree in the few features by which libraries choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from costmodel.predictor.neighbours import STEP, in_steps, portions
from costmodel.predictor.network import Array, Steps

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int32]

LEAST_ALIKE = 20
"""Measured kernels that must agree with a kernel in the features of its regime."""
ENOUGH = 20_000
"""Measured kernels of a group from which such gaps are judged: in a smaller sample any regime is thin."""
UNSUPPORTED_FACTOR = 4.0
"""Factor from the prediction to the upper end of its interval for a kernel whose regime was hardly measured.

Convolutions of 64 to 1-3 channels took up to 9 times as long as predicted on an H200."""
REGIME: Mapping[str, float] = {
    "log_out_channels": 0.2, "kernel_size": 0.5, "dims": 0.5, "depthwise": 0.5, "grouped": 0.5,
    "transposed": 0.5, "dtype_bytes": 0.5,
}  # fmt: skip
"""Features by which libraries choose algorithms for convolutions, with the largest difference of kernels that agree."""


def columns_of(names: Sequence[str]) -> list[int]:
    """Places of the features of REGIME; none in a group without them."""
    return [names.index(name) for name in REGIME] if set(REGIME) <= set(names) else []


def regimes_of(names: Sequence[str], x: Array) -> tuple[Steps, Counts]:
    """Regimes of measured kernels, (regimes, features of REGIME) in steps of STEP, and kernels of each, (regimes,).

    Args:
        names: features, in the order of the vectors.
        x: scaled vectors of the measured kernels, (rows, features); of fewer than ENOUGH rows no regime follows.
    """
    columns = columns_of(names)
    if not columns or len(x) < ENOUGH:
        return no_regimes()
    regimes, counts = np.unique(in_steps(x[:, columns]), axis=0, return_counts=True)
    return regimes, counts.astype(np.int32)


def no_regimes() -> tuple[Steps, Counts]:
    """Regimes of a group in which they are not judged."""
    return np.zeros((0, len(REGIME)), dtype=np.int16), np.zeros(0, dtype=np.int32)


def hardly_measured(names: Sequence[str], scale: Array, x: Array, regimes: Steps, counts: Counts) -> Mask:
    """Whether the regime of each kernel was hardly measured, (rows,).

    Args:
        names: features, in the order of the vectors.
        scale: standard deviations by which the vectors are divided, (features,).
        x: scaled vectors of the kernels, (rows, features).
        regimes: measured regimes, a result of `regimes_of`.
        counts: measured kernels of each.
    """
    if not len(x) or not len(regimes):
        return np.zeros(len(x), dtype=bool)
    columns = columns_of(names)
    reaches = (np.array(list(REGIME.values())) / scale[columns]).astype(np.float32)
    found, place = np.unique(x[:, columns], axis=0, return_inverse=True)
    measured = regimes.astype(np.float32) * np.float32(STEP)
    alike = [
        _agreeing(found[rows], measured, reaches) @ counts for rows in portions(np.arange(len(found)), len(counts))
    ]
    return np.asarray(np.concatenate(alike)[place.reshape(-1)] < LEAST_ALIKE)


def _agreeing(x: Array, measured: Array, reaches: Array) -> Mask:
    """Whether each row of x agrees with each measured regime in all features, (rows of x, regimes)."""
    agree = np.ones((len(x), len(measured)), dtype=bool)
    for column, other, reach in zip(x.T, measured.T, reaches, strict=True):
        agree &= np.abs(other - column[:, None]) <= reach
    return agree
