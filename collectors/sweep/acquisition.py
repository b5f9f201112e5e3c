"""Order in which to measure kernels: by expected reduction of prediction error in the pool per second of measuring.

A measured kernel covers kernels like it, the less the further they are in scaled features. The uncovered error of a
pool after a choice S is the sum over kernels j of error_j times the product over i in S of (1 - likeness_ij); El-Arini
et al., "Turning down the noise in the blogosphere" (KDD 2009). The covered error is submodular, so the greedy choice
comes within 1 - 1/e of the best (Nemhauser, Wolsey and Fisher, 1978); dividing by the time of each is the usual rule
where times differ (Leskovec et al., "Cost-effective outbreak detection in networks", KDD 2007). With equal errors the
choice fills the space, densely where the pool is dense. A batch is diverse: kernels that one of it covers gain less.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array

from costmodel.predictor.network import Array, scaled
from costmodel.training.kernel_models import TrainingSettings, train_network

Values = npt.NDArray[np.float64]

NEIGHBOURS = 32
"""Number of nearest kernels that a kernel covers at least."""
REACH = 2.0
"""Distance in scaled features at which likeness has fallen to 0.6: about the distance from a convolution of the H200's
dataset to its eighth neighbour. Of 0.5, 1, 2 and 4 the last two were slightly best, on one seed."""
QUICK = TrainingSettings(hidden=(64,), learning_rate=2e-3, epochs=40, batch=64, ensemble=4)
"""Settings of a committee that is trained in seconds; each member leaves out another fold."""
MOST_STEPS = 160_000
"""Largest product of rows and epochs: with more rows fewer epochs suffice."""
LEAST_MEASURED = 20
"""Least rows without its fold for a member to leave the fold out."""


def standardised(raw: Array) -> Array:
    """Features of a whole pool, (rows, features), centred and divided by their standard deviation."""
    spread = raw.std(0)
    return scaled(raw, raw.mean(0), np.where(spread > 1e-6, spread, 1.0).astype(np.float32))


def likeness(x: Array) -> csr_array:
    """Likeness of each pair of kernels, 0 to 1: symmetric, (rows, rows), 1 on the diagonal.

    Args:
        x: scaled features, (rows, features).
    """
    from sklearn.neighbors import NearestNeighbors

    count = min(NEIGHBOURS, len(x) - 1)
    if count < 1:
        return csr_array(np.ones((len(x), len(x))))
    near = csr_array(NearestNeighbors(n_neighbors=count, algorithm="brute").fit(x).kneighbors_graph(mode="distance"))
    near.data = np.exp(-0.5 * (near.data / REACH) ** 2)
    return csr_array(near.maximum(near.T) + eye_array(len(x)))


def uncovered(like: csr_array, measured: npt.NDArray[np.int64]) -> Values:
    """Share of each row's error that the measured rows do not cover, 0 to 1; (rows,)."""
    left = np.ones(like.shape[0])
    for row in measured:
        of = slice(like.indptr[row], like.indptr[row + 1])
        left[like.indices[of]] *= 1.0 - like.data[of]
    return left


def order(like: csr_array, error: Values, seconds: Values) -> list[int]:
    """Order all rows, the largest gain per second first.

    Gains are evaluated lazily, as they only fall while others are taken (Minoux, 1978).

    Args:
        like: result of `likeness`.
        error: expected error of each row, (rows,).
        seconds: time to measure each row, (rows,), above 0.
    """
    begins, columns, covered = like.indptr, like.indices, like.data
    left = error.astype(np.float64)
    heap = [(-gain, row) for row, gain in enumerate((like @ left) / seconds)]
    heapq.heapify(heap)
    chosen = []
    while heap:
        _, row = heapq.heappop(heap)
        of = slice(begins[row], begins[row + 1])
        gain = float(covered[of] @ left[columns[of]]) / seconds[row]
        if heap and -gain > heap[0][0]:
            heapq.heappush(heap, (-gain, row))
            continue
        chosen.append(row)
        left[columns[of]] *= 1.0 - covered[of]
    return chosen


def expected_error(x: Array, measured: Array, target: Array, shape: npt.NDArray[np.int64]) -> tuple[Values, Array]:
    """Expected error of a predictor trained on the measured rows, and its prediction; both (rows,), in log time.

    The error combines, as a root of squares, the disagreement of a committee (query by committee; Seung, Opper and
    Sompolinsky, 1992) and the members' errors at measured neighbours whose shape they had not seen.

    Args:
        x: scaled features of the candidates, (rows, features).
        measured: scaled features of the measured kernels, (measured, features).
        target: logarithm of time over bound of each measured kernel.
        shape: shape group of each measured kernel.
    """
    settings = replace(QUICK, epochs=max(4, min(QUICK.epochs, MOST_STEPS // len(measured))))
    predicted, off = [], np.zeros(len(measured))
    for fold in range(settings.ensemble):
        unseen = shape % settings.ensemble == fold
        kept = ~unseen if (~unseen).sum() >= LEAST_MEASURED else np.ones_like(unseen)
        member = train_network(measured[kept], target[kept], settings, fold)
        predicted.append(member.forward(x))
        off[unseen] = target[unseen] - member.forward(measured[unseen])
    residual = _at_neighbours(x, measured, np.minimum(np.abs(off), 1.0))
    differing = np.minimum(np.std(predicted, axis=0), 1.0)
    return np.hypot(differing, residual), np.mean(predicted, axis=0)


def _at_neighbours(x: Array, measured: Array, values: Values) -> Values:
    """Mean of the values of each row's eight nearest measured rows, weighted by closeness."""
    from sklearn.neighbors import NearestNeighbors

    found = NearestNeighbors(n_neighbors=min(8, len(measured)), algorithm="brute").fit(measured)
    distance, index = found.kneighbors(x)
    weight = 1.0 / (distance + 0.3)
    return np.asarray((weight * values[index]).sum(1) / weight.sum(1))
