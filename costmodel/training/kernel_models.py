"""Measured kernels -> a trained predictor: networks and trees, the kernels they are corrected by, widths of intervals.

What a network may learn from is decided elsewhere (`folds`).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from costmodel.predictor.group_model import GroupModel, host_us_of, none_measured, size_of
from costmodel.predictor.neighbours import distances, in_steps, places_of
from costmodel.predictor.network import Array, NeuralNetwork, scaled
from costmodel.training.boosted_trees import grow_device_trees, grow_host_trees
from costmodel.training.tables import Table

COVERAGE = 0.9
EDGES_US = (4.0, 10.0, 40.0, 200.0)


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How networks and trees are trained; chosen by cross-validation on shape groups.

    `ensemble` is how many networks learn from the same rows, `trees` how many boosted trees do; `trees_share` is what
    these have of a say beside the networks, of convolutions CONVOLUTIONS_TREES_SHARE; `reach` is how far what a
    measured kernel has left unexplained tells of others; `most_cases` is how many whole models are captured and
    predicted for costs, intervals and scores.
    """

    hidden: tuple[int, ...] = (256, 128, 64)
    alpha: float = 3e-3
    learning_rate: float = 3e-3
    epochs: int = 20
    batch: int = 256
    ensemble: int = 1
    trees: int = 200
    trees_share: float = 0.5
    reach: float = 0.2
    seed: int = 0
    most_cases: int = 70

    @property
    def schedule(self) -> tuple[tuple[float, int], ...]:
        """Learning rates and how many epochs each is used for: the rate falls to a fifth and a twenty-fifth."""
        last = self.epochs // 5
        stages = ((self.learning_rate, self.epochs - 2 * last), (self.learning_rate / 5, last))
        return tuple(stage for stage in (*stages, (self.learning_rate / 25, last)) if stage[1])


THOROUGH = TrainingSettings(epochs=60, ensemble=4, trees=400, most_cases=10**6)
"""For a profile that ships: some ten times the work of the default. Four networks of 60 epochs tell shapes that none of
them saw 4 % better than two of 80."""


def train_network(x: Array, y: Array, settings: TrainingSettings, seed: int) -> NeuralNetwork:
    """One multilayer perceptron, by scikit-learn, as plain arrays."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    regressor = MLPRegressor(
        hidden_layer_sizes=settings.hidden,
        alpha=settings.alpha,
        batch_size=min(settings.batch, len(y)),
        random_state=seed,
        n_iter_no_change=settings.epochs,
        tol=0.0,
        warm_start=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a fixed number of epochs is the point
        for rate, epochs in settings.schedule:
            regressor.set_params(learning_rate_init=rate, max_iter=epochs).fit(x, y)
    return NeuralNetwork(
        tuple(weight.astype(np.float32) for weight in regressor.coefs_),
        tuple(bias.astype(np.float32) for bias in regressor.intercepts_),
    )


def fit_group(table: Table, settings: TrainingSettings, out_of_fold: Array | None = None) -> GroupModel:
    """The predictor of one group; intervals from `out_of_fold` predictions of the target, if given."""
    mean, scale = moments(table)
    networks = train_networks(table, mean, scale, settings)
    return assemble(table, mean, scale, networks, settings, out_of_fold)


def moments(table: Table) -> tuple[Array, Array]:
    """Mean and standard deviation of each feature, 1 where it does not vary; (features,) each."""
    deviation = table.raw.std(0)
    return table.raw.mean(0), np.where(deviation > 1e-6, deviation, 1.0).astype(np.float32)


def train_networks(table: Table, mean: Array, scale: Array, settings: TrainingSettings) -> tuple[NeuralNetwork, ...]:
    """The ensemble of one group, each from other random weights."""
    x = scaled(table.raw, mean, scale)
    return tuple(train_network(x, table.target, settings, settings.seed + i) for i in range(settings.ensemble))


CONVOLUTIONS_HAVE = "grouped"
"""A feature that no other kernels have: of theirs, the library runs some group after group."""
PRECISION = "dtype_bytes"
"""The feature on whose either side other trees are grown."""
CONVOLUTIONS_TREES_SHARE = 0.65
"""Of convolutions left out trees tell more than networks do, as which kernel the library takes leaps with sizes."""


def assemble(
    table: Table,
    mean: Array,
    scale: Array,
    networks: tuple[NeuralNetwork, ...],
    settings: TrainingSettings,
    out_of_fold: Array | None = None,
) -> GroupModel:
    """Networks, trees grown here, and the measured kernels of a table as the predictor of its group.

    Args:
        table: what the trees learn from and the predictor remembers; the networks need not have seen all of it.
        mean: of each feature, as the networks were trained with.
        scale: likewise.
        networks: what the residuals are taken from is made of them and the trees.
        settings: the reach of a residual.
        out_of_fold: predictions of the target by what did not see the row, for the intervals; (rows,).
    """
    x = scaled(table.raw, mean, scale)
    precision = table.names.index(PRECISION) if PRECISION in table.names else None
    memory, of_convolutions = in_steps(x), CONVOLUTIONS_HAVE in table.names
    far = 2.0 * float(np.quantile(gaps(x, settings.seed), 0.98))
    edges = np.array(EDGES_US, dtype=np.float32)
    host_trees = grow_host_trees(x, table.host_us, settings.seed, looped=of_convolutions)
    sizes, limits = limits_by_size(size_of(x, table.names), table.target)
    unfitted = GroupModel(
        names=table.names,
        mean=mean,
        scale=scale,
        networks=networks,
        trees=grow_device_trees(x, table.target, settings.trees, settings.seed, apart=precision),
        memory=memory,
        trees_share=CONVOLUTIONS_TREES_SHARE if of_convolutions else settings.trees_share,
        places=places_of(memory),
        residual=np.zeros(len(x), dtype=np.float32),
        reach=settings.reach,
        edges=edges,
        widths=np.zeros(len(edges) + 1, dtype=np.float32),
        far=far,
        workspace=table.workspace,
        host_us=none_measured() if host_trees is None else host_us_of(host_trees, x),
        host_trees=host_trees,
        sizes=sizes,
        limits=limits,
    )
    residual = table.target - unfitted.expected(x)
    error = np.abs(table.target - out_of_fold) if out_of_fold is not None else np.abs(residual)
    return replace(unfitted, residual=residual, known=table.target, widths=interval_widths(error, table.time_us))


def limits_by_size(size: Array, target: Array) -> tuple[Array, Array]:
    """What the networks are held within: edges of size, ascending, and the least and largest target between them.

    So that an operator which one model alone has, say, is not taken for slower than anything of its size ever was.

    Args:
        size: of each measured kernel, (rows,).
        target: of each, (rows,).

    Returns:
        (bins - 1,) and (bins, 2): bins of about equally many kernels; each bin's limits leave EXTREME of the kernels
        of it and of its neighbours out at either end.
    """
    bins = max(1, min(MOST_BINS, len(size) // LEAST_IN_BIN))
    sizes = np.unique(np.quantile(size, np.arange(1, bins) / bins)).astype(np.float32)
    place = np.searchsorted(sizes, size)
    near = [target[np.abs(place - index) <= 1] for index in range(len(sizes) + 1)]
    return sizes, np.array([np.quantile(some, (EXTREME, 1 - EXTREME)) for some in near], dtype=np.float32)


MOST_BINS = 24
LEAST_IN_BIN = 100
"""Sizes of kernels that are told apart when their predictions are held within what was measured."""
EXTREME = 0.003
"""The share of measured kernels whose times are so far out that no prediction goes there on its own."""


def gaps(x: Array, seed: int) -> Array:
    """Distance from rows to the nearest other row, for at most MOST_GAPS of them, chosen by lot."""
    rows = np.random.default_rng(seed).permutation(len(x))[:MOST_GAPS]
    found = distances(x[rows], x)
    found[np.arange(len(rows)), rows] = np.inf
    return np.asarray(found.min(1))


MOST_GAPS = 2000
"""Rows of which the distance to the nearest other one is taken; all pairs of tens of thousands fill the memory."""


def interval_widths(error: Array, time_us: npt.NDArray[np.float64]) -> Array:
    """Split-conformal half-widths of the logarithm by size of the kernel (Vovk, "Conditional validity", 2012)."""
    bins = np.searchsorted(EDGES_US, time_us)
    widths = []
    for index in range(len(EDGES_US) + 1):
        errors = error[bins == index] if (bins == index).sum() >= 20 else error
        rank = min(1.0, math.ceil((len(errors) + 1) * COVERAGE) / len(errors))
        widths.append(float(np.quantile(errors, rank)))
    return np.array(widths, dtype=np.float32)
