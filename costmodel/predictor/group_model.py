"""The predictor of one group of kernels: networks and trees on scaled features, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from costmodel.errors import ProfileError
from costmodel.features import OPTIONAL
from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.neighbours import EXACT, STEP32, corrections, distances, portions, usual
from costmodel.predictor.network import Array, NeuralNetwork, Steps, scaled
from costmodel.predictor.recall import Recall, Times
from costmodel.predictor.support import Counts, Mask, no_regimes
from costmodel.predictor.trees import Trees

BOUND = "log_bound_us"
"""Feature that orders kernels by size."""
LARGEST_RANGE = (-3.0, 6.0)
"""Least and largest predicted logarithm of time over bound."""
UNMEASURED = -1.0
"""Workspace or host time of a kernel where it was not measured."""
USUAL_HOST_US = 10.0
"""Host time of a launch in a group without measured host times, microseconds."""
HOST_RANGE = (-1.0, 9.0)
"""Least and largest predicted logarithm of a launch's host time in microseconds, whatever the file holds."""
RECALLED_WIDTH = 0.05
"""Half-width of the log interval of a kernel equal to a measured one.

96 % of the kernels that two machines with the same GPU measured agree within it (`repeated` in the summary of
nvidia-h200)."""

FAR_FACTOR = 3.0
"""Factor of the half-width beyond `far` without an error curve."""
WIDEST = math.log(16.0)
"""Largest half-width, far from all measured kernels: none was further than 9 times from its prediction."""
EXTRAPOLATED_WIDTH = math.log(2.0)
"""Half-width of the interval of a kernel's logarithm from which it counts as extrapolated: a factor of 2."""


def none_measured() -> Array:
    """Workspaces or host times of a group in which none was measured."""
    return np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class GroupModel:
    """The predictor of one group of kernels.

    Attributes:
        names: features, in the order of the vectors.
        mean, scale: mean and standard deviation of the features in training, (features,).
        networks: ensemble whose outputs are averaged; none to predict by the trees alone.
        sample: scaled features of a sample of the measured kernels in steps of STEP, (rows, features).
        residual: measured minus predicted logarithm of each kernel of the sample, (rows,).
        reach: width of the Gaussian weights of residuals, in scaled features.
        edges, widths: half-widths of the 90 % interval of the logarithm, by predicted time: `widths[i]` holds for
            times below `edges[i]` microseconds, the last for all above.
        far: distance to the nearest kernel of the sample beyond which a kernel is out of distribution.
        recall: all measured kernels by their keys.
        workspace: bytes that each kernel of the sample allocates beside its results, as a share of its traffic,
            (rows,); UNMEASURED where it was not measured, empty for groups without.
        trees: boosted trees for the same logarithm as the networks'; None to predict by the networks alone.
        host_trees: boosted trees for the logarithm of a launch's host time; None where none was measured.
        sizes: scaled logarithms of the bound between the bins of `limits`, ascending.
        limits: least and largest predicted logarithm by size, from measured kernels of that size, (bins, 2).
        trees_share: weight of the trees in their mean with the networks, 0 to 1.
        curve: growth of the half-widths with the distance to the nearest measured kernel; None in a profile of an
            earlier version, whose half-widths triple beyond `far`.
        regimes, regime_counts: measured regimes and the number of kernels in each (`support.regimes_of`).
    """

    names: tuple[str, ...]
    mean: Array
    scale: Array
    networks: tuple[NeuralNetwork, ...]
    sample: Steps
    residual: Array
    reach: float
    edges: Array
    widths: Array
    far: float
    recall: Recall = field(default_factory=Recall.nothing)
    workspace: Array = field(default_factory=none_measured)
    trees: Trees | None = None
    host_trees: Trees | None = None
    sizes: Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    limits: Array = field(default_factory=lambda: np.array([LARGEST_RANGE], dtype=np.float32))
    trees_share: float = 0.5
    curve: ErrorCurve | None = None
    regimes: Steps = field(default_factory=lambda: no_regimes()[0])
    regime_counts: Counts = field(default_factory=lambda: no_regimes()[1])

    def vectors(self, features: Sequence[Mapping[str, float]]) -> Array:
        """Scaled feature vectors of kernels, (rows, features).

        Raises:
            ProfileError: the features are not those that the model was trained on.
        """
        for named in features[:1]:
            mismatched = sorted((set(named) ^ set(self.names)) - (OPTIONAL - set(self.names)))
            if mismatched:
                raise ProfileError(
                    f"the predictor was trained on other features ({', '.join(mismatched[:4])}); train it again"
                )
        raw = np.array([[named[name] for name in self.names] for named in features], dtype=np.float32)
        return scaled(raw, self.mean, self.scale)

    def expected(self, x: Array) -> Array:
        """Weighted mean of networks and trees for scaled vectors, clipped to `limits`."""
        if not self.networks and self.trees is not None:
            mean = self.trees.forward(x)
        else:
            mean = np.mean([network.forward(x) for network in self.networks], axis=0)
            if self.trees is not None:
                mean = (1.0 - self.trees_share) * mean + self.trees_share * self.trees.forward(x)
        low, high = self.limits[np.searchsorted(self.sizes, size_of(x, self.names))].T
        return np.asarray(np.clip(mean, low, high), dtype=np.float32)

    @property
    def measured(self) -> Array:
        """Scaled features of the sample of measured kernels, (rows, features)."""
        return np.asarray(self.sample * STEP32, dtype=np.float32)

    def log_ratio(self, x: Array) -> tuple[Array, Array]:
        """Logarithm of time over bound for scaled vectors, and their distances to the nearest kernel of the sample."""
        correction, nearest = corrections(x, self.measured, self.residual, self.reach)
        return self.expected(x) + correction, nearest

    def host_us(self, x: Array) -> Array:
        """Host time to launch kernels with scaled vectors, microseconds; (rows,)."""
        if self.host_trees is None:
            return np.full(len(x), USUAL_HOST_US, dtype=np.float32)
        return host_us_of(self.host_trees, x)

    def half_widths(self, us: Times, distances: Times) -> Times:
        """Half-widths of the 90 % intervals of logarithms, (rows,).

        Args:
            us: predicted time of each kernel.
            distances: distance of each to the nearest kernel of the sample; 0 for a recalled kernel.
        """
        usual = self.widths[np.searchsorted(self.edges, us)].astype(np.float64)
        if self.curve is not None:
            wide = np.minimum(usual * self.curve.factors_at(distances), WIDEST)
        else:
            wide = np.where(distances <= self.far, usual, FAR_FACTOR * usual)
        return np.where(distances < EXACT, np.minimum(usual, RECALLED_WIDTH), wide)

    def in_range(self, half_widths: Times, distances: Times) -> Mask:
        """Whether kernels with these half-widths and distances are predicted, not extrapolated, (rows,)."""
        return np.asarray(distances <= self.far if self.curve is None else half_widths <= EXTRAPOLATED_WIDTH)

    def workspace_share(self, x: Array) -> Array:
        """Workspaces for scaled vectors as shares of the kernels' traffic, (rows,).

        It is the median of the ALIKE nearest kernels of the sample: a library chooses one algorithm or another, and
        nothing in between.
        """
        known = self.workspace >= 0 if len(self.workspace) else np.zeros(len(self.sample), dtype=bool)
        if not known.any():
            return np.zeros(len(x), dtype=np.float32)
        measured, share = self.measured[known], self.workspace[known]
        parts = portions(np.arange(len(x)), len(measured))
        return np.concatenate([usual(distances(x[rows], measured), share) for rows in parts])


def size_of(x: Array, names: Sequence[str]) -> Array:
    """Scaled logarithm of each kernel's bound, (rows,); zeros for a group without that feature."""
    return x[:, names.index(BOUND)] if BOUND in names else np.zeros(len(x), dtype=np.float32)


def host_us_of(trees: Trees, x: Array) -> Array:
    """Host time to launch kernels, by trees on scaled vectors, microseconds; (rows,)."""
    return np.asarray(np.exp(np.clip(trees.forward(x), *HOST_RANGE)), dtype=np.float32)
