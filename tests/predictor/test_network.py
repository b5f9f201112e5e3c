"""Networks by hand: outputs, bounds on activations, and scaled features."""

from __future__ import annotations

import numpy as np

from costmodel.predictor.network import OUTLYING, NeuralNetwork, scaled


def rows(*values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


# three features, two hidden units, one output
NETWORK = NeuralNetwork(
    (rows([1.0, -1.0], [2.0, 0.0], [0.0, 3.0]), rows([1.0], [-2.0])), (np.float32([0.5, -1.0]), np.float32([10.0]))
)


def test_a_hidden_layer_is_rectified_and_the_last_is_not():
    # [1 + 2 + 0.5, -1 + 3 - 1] = [3.5, 1]: 3.5 - 2 + 10; and [-0.5, 0 - 1] -> [0, 0]: 10
    assert NETWORK.forward(rows([1.0, 1.0, 1.0], [-1.0, 0.0, -1 / 3])).tolist() == [11.5, 10.0]
    minus = NeuralNetwork((rows([-1.0]),), (np.float32([0.0]),))
    assert minus.forward(rows([2.0])).tolist() == [-2.0]


def test_the_bound_is_the_largest_of_any_layer():
    # of features up to 2: 2 * 3 + 0.5 and 2 * 4 + 1 in the hidden layer, then 6.5 + 2 * 9 + 10
    assert NETWORK.largest(2.0) == 34.5
    small = NeuralNetwork((rows([0.1], [0.1]), rows([0.1])), (np.float32([0.0]), np.float32([0.0])))
    assert small.largest(5.0) == 5.0  # the features themselves


def test_features_are_standardised_and_clipped():
    mean, scale = np.float32([1.0, 0.0]), np.float32([2.0, 1e-3])
    assert scaled(rows([5.0, 1.0], [1.0, -1.0]), mean, scale).tolist() == [[2.0, OUTLYING], [0.0, -OUTLYING]]
