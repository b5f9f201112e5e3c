"""Measured kernels -> the model of a group: networks, trees, measured kernels with residuals, widths of intervals.

`costmodel.training.folds` decides which rows a network may learn from.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from costmodel.predictor.group_model import GroupModel, host_us_of, size_of
from costmodel.predictor.neighbours import distances, in_steps, spread_sample
from costmodel.predictor.network import Array, NeuralNetwork, scaled
from costmodel.predictor.recall import Recall
from costmodel.predictor.support import regimes_of
from costmodel.training.boosted_trees import grow_device_trees, grow_host_trees
from costmodel.training.prune import prune
from costmodel.training.tables import Table

COVERAGE = 0.9
"""Share of kernels that an interval covers."""
EDGES_US = (4.0, 10.0, 40.0, 200.0)
"""Edges of the bins of predicted time with widths of their own, microseconds."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of training, chosen by cross-validation on shape groups.

    Attributes:
        hidden: widths of the hidden layers.
        alpha: L2 regularisation.
        learning_rate: initial learning rate.
        epochs: epochs of a network.
        batch: rows of a minibatch.
        ensemble: networks trained on the same rows.
        trees: number of boosted trees.
        trees_share: weight of the trees beside the networks; CONVOLUTIONS_TREES_SHARE for convolutions.
        reach: width of the Gaussian weights of residuals.
        seed: seed of all random choices.
        most_cases: most measured models that costs, intervals and scores are fitted to.
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
        """Learning rates and their epochs: the rate falls to a fifth and to a twenty-fifth."""
        last = self.epochs // 5
        stages = ((self.learning_rate, self.epochs - 2 * last), (self.learning_rate / 5, last))
        return tuple(stage for stage in (*stages, (self.learning_rate / 25, last)) if stage[1])


THOROUGH = TrainingSettings(epochs=60, ensemble=4, trees=400, most_cases=10**6)
"""Settings of shipped profiles, about ten times the work of the default.

Four networks of 60 epochs predict held-out shapes 4 % better than two of 80."""


def train_network(x: Array, y: Array, settings: TrainingSettings, seed: int) -> NeuralNetwork:
    """Train a multilayer perceptron with scikit-learn."""
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
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is fixed
        for rate, epochs in settings.schedule:
            regressor.set_params(learning_rate_init=rate, max_iter=epochs).fit(x, y)
    return NeuralNetwork(
        tuple(weight.astype(np.float32) for weight in regressor.coefs_),
        tuple(bias.astype(np.float32) for bias in regressor.intercepts_),
    )


def fit_group(table: Table, settings: TrainingSettings, out_of_fold: Array | None = None) -> GroupModel:
    """Model of one group, with intervals from `out_of_fold` predictions of the target, if given."""
    mean, scale = moments(table)
    networks = train_networks(table, mean, scale, settings)
    return assemble(table, mean, scale, networks, settings, out_of_fold)


def moments(table: Table) -> tuple[Array, Array]:
    """Mean and standard deviation of each feature, 1 where it does not vary; (features,) each."""
    deviation = table.raw.std(0)
    return table.raw.mean(0), np.where(deviation > 1e-6, deviation, 1.0).astype(np.float32)


def train_networks(table: Table, mean: Array, scale: Array, settings: TrainingSettings) -> tuple[NeuralNetwork, ...]:
    """Ensemble of one group, each network from other random weights."""
    x = scaled(table.raw, mean, scale)
    return tuple(train_network(x, table.target, settings, settings.seed + i) for i in range(settings.ensemble))


CONVOLUTIONS_HAVE = "grouped"
"""Feature that only convolutions have, some of which launch a kernel for each group of channels."""
PRECISION = "dtype_bytes"
"""Feature that separates half from single precision, which have separate trees."""
CONVOLUTIONS_TREES_SHARE = 0.65
"""Weight of the trees for convolutions, whose times jump with sizes as the library chooses another kernel."""


def assemble(
    table: Table,
    mean: Array,
    scale: Array,
    networks: tuple[NeuralNetwork, ...],
    settings: TrainingSettings,
    out_of_fold: Array | None = None,
) -> GroupModel:
    """Assemble the model of a group from trained networks and a table, on which the trees are grown.

    Args:
        table: measured kernels; the networks need not have seen all of them.
        mean: mean of each feature that the networks were trained with.
        scale: standard deviation of each feature, likewise.
        networks: trained networks.
        settings: training settings.
        out_of_fold: out-of-fold predictions of the target for the intervals, (rows,).
    """
    x = scaled(table.raw, mean, scale)
    precision = table.names.index(PRECISION) if PRECISION in table.names else None
    of_convolutions = CONVOLUTIONS_HAVE in table.names
    chosen = spread_sample(x, MOST_SAMPLED, settings.seed)
    far = 2.0 * float(np.quantile(gaps(x[chosen], settings.seed), 0.98))
    edges = np.array(EDGES_US, dtype=np.float32)
    host_trees = grow_host_trees(x, table.host_us, settings.seed, several_launches=of_convolutions)
    sizes, limits = limits_by_size(size_of(x, table.names), table.target)
    regimes, regime_counts = regimes_of(table.names, x)
    unfitted = GroupModel(
        names=table.names,
        mean=mean,
        scale=scale,
        networks=networks,
        trees=prune(grow_device_trees(x, table.target, settings.trees, settings.seed, precision), x, TOLERANCE),
        sample=in_steps(x[chosen]),
        trees_share=CONVOLUTIONS_TREES_SHARE if of_convolutions else settings.trees_share,
        residual=np.zeros(len(chosen), dtype=np.float32),
        reach=settings.reach,
        edges=edges,
        widths=np.zeros(len(edges) + 1, dtype=np.float32),
        far=far,
        recall=Recall.of(
            table.hashes,
            table.time_us,
            None if host_trees is None else host_us_of(host_trees, x),
            table.workspace_bytes,
        ),
        workspace=table.workspace[chosen] if len(table.workspace) else table.workspace,
        host_trees=host_trees,
        sizes=sizes,
        limits=limits,
        regimes=regimes,
        regime_counts=regime_counts,
    )
    residual = table.target - unfitted.expected(x)
    error = np.abs(table.target - out_of_fold) if out_of_fold is not None else np.abs(residual)
    return replace(unfitted, residual=residual[chosen], widths=interval_widths(error, table.time_us))


TOLERANCE = 0.005
"""Change of the logarithm that pruned trees may make, as `prune` counts it."""
MOST_SAMPLED = 16_000
"""Most measured kernels of a group that are kept as neighbours in feature space; all are recalled by their keys."""


def limits_by_size(size: Array, target: Array) -> tuple[Array, Array]:
    """Limits of predictions by size: an unusual operator is not predicted slower than any measured kernel of its size.

    Args:
        size: size of each measured kernel, (rows,).
        target: target of each, (rows,).

    Returns:
        Edges of bins with about equal numbers of kernels, ascending, (bins - 1,). Least and largest target of each bin,
        (bins, 2): quantiles EXTREME and 1 - EXTREME over the bin and its neighbours.
    """
    bins = max(1, min(MOST_BINS, len(size) // LEAST_IN_BIN))
    sizes = np.unique(np.quantile(size, np.arange(1, bins) / bins)).astype(np.float32)
    place = np.searchsorted(sizes, size)
    near = [target[np.abs(place - index) <= 1] for index in range(len(sizes) + 1)]
    return sizes, np.array([np.quantile(some, (EXTREME, 1 - EXTREME)) for some in near], dtype=np.float32)


MOST_BINS = 24
"""Most bins of size with limits of their own."""
LEAST_IN_BIN = 100
"""Fewest kernels of a bin."""
EXTREME = 0.003
"""Share of measured kernels beyond the limits, at either end."""


def gaps(x: Array, seed: int) -> Array:
    """Distances of at most MOST_GAPS random rows to the nearest other row."""
    rows = np.random.default_rng(seed).permutation(len(x))[:MOST_GAPS]
    found = distances(x[rows], x)
    found[np.arange(len(rows)), rows] = np.inf
    return np.asarray(found.min(1))


MOST_GAPS = 2000
"""Most rows whose distances are computed; all pairs of tens of thousands would fill the memory."""


def interval_widths(error: Array, time_us: npt.NDArray[np.float64]) -> Array:
    """Split-conformal half-widths of the logarithm by predicted time (Vovk, "Conditional validity", 2012)."""
    bins = np.searchsorted(EDGES_US, time_us)
    widths = []
    for index in range(len(EDGES_US) + 1):
        errors = error[bins == index] if (bins == index).sum() >= 20 else error
        rank = min(1.0, math.ceil((len(errors) + 1) * COVERAGE) / len(errors))
        widths.append(float(np.quantile(errors, rank)))
    return np.array(widths, dtype=np.float32)
