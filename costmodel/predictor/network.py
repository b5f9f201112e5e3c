"""Feed-forward networks as arrays, evaluated with NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Steps = npt.NDArray[np.int16]
Rows = npt.NDArray[np.intp]
OUTLYING = 6.0
"""Standard deviations to which scaled features are clipped."""


@dataclass(frozen=True, slots=True)
class NeuralNetwork:
    """A multilayer perceptron with rectified linear units: weights[i] is (inputs, outputs), biases[i] (outputs,)."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def forward(self, x: Array) -> Array:
        """Outputs, (rows,), for scaled features, (rows, features), as scikit-learn's MLPRegressor.predict has them."""
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if layer < last:
                x = np.maximum(x, 0.0)
        return x[:, 0]

    def largest(self, most: float) -> float:
        """Bound on the magnitude of every activation, for features of magnitude `most` at most.

        Each layer's outputs are bounded by the magnitudes of its weights (interval arithmetic).
        """
        bound = np.full(len(self.weights[0]), most)
        largest = most
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = bound @ np.abs(weight) + np.abs(bias)
            largest = max(largest, float(bound.max()))
        return largest


def scaled(raw: Array, mean: Array, scale: Array) -> Array:
    """Features standardised and clipped to OUTLYING, so that a network does not extrapolate along a rare feature."""
    return np.asarray(np.clip((raw - mean) / scale, -OUTLYING, OUTLYING), dtype=np.float32)
