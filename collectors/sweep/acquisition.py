"""In which order to measure kernels: first those that tell most of others that are badly predicted, for their time.

A measured kernel tells of those like it, the less the further they are in scaled features. What a choice S leaves
untold of a pool is the sum over its kernels j of error_j times the product over i in S of (1 - likeness_ij);
El-Arini et al., "Turning down the noise in the blogosphere" (KDD 2009). As it is submodular, taking what removes most
of it next comes within 1 - 1/e of the best choice (Nemhauser, Wolsey and Fisher, 1978); to divide by what each takes is
the usual rule where times differ (Leskovec et al., "Cost-effective outbreak detection in networks", KDD 2007).
With all errors alike the choice fills the space, densely where the pool is dense. A batch is never all alike: what one
of it tells of, the others need not.
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
"""A kernel tells of so many others at least."""
REACH = 2.0
"""Distance in scaled features at which what is told has fallen to 0.6: about that from a convolution of the H200's
dataset to its eighth neighbour. Of 0.5, 1, 2 and 4 the last two were best by little, on one seed."""
QUICK = TrainingSettings(hidden=(64,), learning_rate=2e-3, epochs=40, batch=64, ensemble=4)
"""A committee that is trained in seconds; its members differ by what they were not shown."""
MOST_STEPS = 160_000
"""Rows times epochs at most: with more rows fewer epochs do."""
LEAST_MEASURED = 20
"""A member of the committee sees all rows if without its fold there were fewer."""


def standardised(raw: Array) -> Array:
    """Features of a whole pool, (rows, features), centred and divided by their spread."""
    spread = raw.std(0)
    return scaled(raw, raw.mean(0), np.where(spread > 1e-6, spread, 1.0).astype(np.float32))


def likeness(x: Array) -> csr_array:
    """How much each kernel tells of each other one, 0 to 1: symmetric, (rows, rows), 1 on the diagonal.

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


def untold(like: csr_array, measured: npt.NDArray[np.int64]) -> Values:
    """What the measured rows leave untold of each, 0 to 1; (rows,)."""
    left = np.ones(like.shape[0])
    for row in measured:
        of = slice(like.indptr[row], like.indptr[row + 1])
        left[like.indices[of]] *= 1.0 - like.data[of]
    return left


def order(like: csr_array, error: Values, seconds: Values) -> list[int]:
    """All rows, the most useful for its time first.

    By lazy evaluation: what a row is good for only falls as others are taken (Minoux, 1978).

    Args:
        like: of `likeness`.
        error: what is to be told of each row, (rows,).
        seconds: what measuring each takes, (rows,), above 0.
    """
    begins, columns, told = like.indptr, like.indices, like.data
    left = error.astype(np.float64)
    heap = [(-gain, row) for row, gain in enumerate((like @ left) / seconds)]
    heapq.heapify(heap)
    chosen = []
    while heap:
        _, row = heapq.heappop(heap)
        of = slice(begins[row], begins[row + 1])
        gain = float(told[of] @ left[columns[of]]) / seconds[row]
        if heap and -gain > heap[0][0]:
            heapq.heappush(heap, (-gain, row))
            continue
        chosen.append(row)
        left[columns[of]] *= 1.0 - told[of]
    return chosen


def expected_error(x: Array, measured: Array, target: Array, shape: npt.NDArray[np.int64]) -> tuple[Values, Array]:
    """How wrong a predictor trained on the measured rows is expected to be, and what it predicts; both (rows,).

    In the logarithm of time. Errors are what the members of a committee differ by (query by committee; Seung, Opper
    and Sompolinsky, 1992) and what members were off by at the measured neighbours whose shape they had not seen, added
    in squares.

    Args:
        x: scaled features of the candidates, (rows, features).
        measured: those of the measured kernels, (measured, features).
        target: logarithm of time over bound of each measured kernel.
        shape: shape group of each.
    """
    settings = replace(QUICK, epochs=max(4, min(QUICK.epochs, MOST_STEPS // len(measured))))
    said, off = [], np.zeros(len(measured))
    for fold in range(settings.ensemble):
        unseen = shape % settings.ensemble == fold
        kept = ~unseen if (~unseen).sum() >= LEAST_MEASURED else np.ones_like(unseen)
        member = train_network(measured[kept], target[kept], settings, fold)
        said.append(member.forward(x))
        off[unseen] = target[unseen] - member.forward(measured[unseen])
    residual = _at_neighbours(x, measured, np.minimum(np.abs(off), 1.0))
    differing = np.minimum(np.std(said, axis=0), 1.0)
    return np.hypot(differing, residual), np.mean(said, axis=0)


def _at_neighbours(x: Array, measured: Array, values: Values) -> Values:
    """Mean of the values of each row's eight nearest measured rows, the nearer the heavier."""
    from sklearn.neighbors import NearestNeighbors

    found = NearestNeighbors(n_neighbors=min(8, len(measured)), algorithm="brute").fit(measured)
    distance, index = found.kneighbors(x)
    weight = 1.0 / (distance + 0.3)
    return np.asarray((weight * values[index]).sum(1) / weight.sum(1))
