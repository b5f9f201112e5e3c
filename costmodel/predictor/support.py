"""Support of a prediction: whether kernels of its regime were measured at all.

A distance sums over all features, so a kernel may be near measured ones that a library runs by another algorithm. A
convolution of 64 to 3 channels is near those of 64 to 16, of which there are thousands, and takes several times as long
for its arithmetic. So kernels must also be measured that agree in the few features by which libraries choose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from costmodel.predictor.neighbours import STEP
from costmodel.predictor.network import Array, Steps

Mask = npt.NDArray[np.bool_]

LEAST_ALIKE = 20
"""Measured kernels that must agree with a kernel in the features of its regime."""
ENOUGH = 20_000
"""Measured kernels of a group from which such gaps are judged: in a smaller sample any regime is thin."""
UNSUPPORTED_WIDTH = math.log(4.0)
"""Half-width above the prediction of a kernel whose regime was hardly measured, a factor of 4.

Convolutions of 64 to 1-3 channels took up to 9 times as long as predicted on an H200."""
REGIME: Mapping[str, Mapping[str, float]] = {
    "conv": {
        "log_out_channels": 0.2, "kernel_size": 0.5, "dims": 0.5, "depthwise": 0.5, "grouped": 0.5,
        "transposed": 0.5, "dtype_bytes": 0.5,
    },
}  # fmt: skip
"""Features by which libraries choose algorithms, with the largest difference of kernels that agree, by group."""


def hardly_measured(group: str, names: Sequence[str], scale: Array, x: Array, memory: Steps) -> Mask:
    """Whether the regime of each kernel was hardly measured, (rows,).

    Args:
        group: group of the kernels.
        names: features, in the order of the vectors.
        scale: standard deviations by which the vectors are divided, (features,).
        x: scaled vectors of the kernels, (rows, features).
        memory: scaled vectors of the measured kernels in steps of STEP.
    """
    chosen = {names.index(name): reach for name, reach in REGIME.get(group, {}).items() if name in names}
    if not chosen or len(memory) < ENOUGH:
        return np.zeros(len(x), dtype=bool)
    columns = list(chosen)
    reaches = np.array([reach / scale[column] for column, reach in chosen.items()], dtype=np.float32)
    found, place = np.unique(x[:, columns], axis=0, return_inverse=True)
    measured = memory[:, columns].astype(np.float32) * np.float32(STEP)
    counts = [int((np.abs(measured - one) <= reaches).all(axis=1).sum()) for one in found]
    return np.asarray(np.array(counts)[place.reshape(-1)] < LEAST_ALIKE)
