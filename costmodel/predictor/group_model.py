"""The predictor of one group of kernels: networks and trees on scaled features, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from costmodel.errors import ProfileError
from costmodel.features import OPTIONAL
from costmodel.predictor.neighbours import STEP32, distances, places_of, portions, recall, usual, weigh
from costmodel.predictor.network import Array, NeuralNetwork, Steps, scaled
from costmodel.predictor.trees import Trees

TREES_SHARE = 0.4
"""Of files of earlier versions, which do not say."""
BOUND = "log_bound_us"
"""The feature by which kernels are large or small."""
LARGEST_RANGE = (-3.0, 6.0)
"""Logarithms of time over bound beyond which no prediction goes."""
UNMEASURED = -1.0
"""The workspace of a kernel where it was not measured."""
USUAL_HOST_US = 10.0
"""What the host takes to issue a kernel of which no like was measured."""
HOST_RANGE = (-1.0, 9.0)
"""Logarithms of microseconds between which a call takes the host, whatever a file says."""
RECALLED_WIDTH = 0.05
"""Half-width of the logarithm for a kernel equal to a measured one: so far are 96 % of the kernels that two
machines of one kind measured (`repeated` in the card of nvidia-h200)."""


def none_measured() -> Array:
    """The workspaces, or times on the host, of a group in which none was measured."""
    return np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class GroupModel:
    """The predictor of one group of kernels.

    Attributes:
        names: features, in the order of the vectors.
        mean, scale: of the features in training; vectors are centred and divided by them.
        networks: the ensemble, averaged.
        trees: which tell the same as the networks; None in files of earlier versions.
        memory: scaled features of the measured kernels in steps of STEP, (rows, features).
        residual: measured minus predicted logarithm of each, (rows,).
        known: measured logarithm of each, (rows,); empty in files of earlier versions.
        reach: distance in scaled features at which a measured kernel's residual has lost its weight.
        edges, widths: half-widths of the 90 % interval of the logarithm, by predicted time: `widths[i]` holds for
            times below `edges[i]` microseconds, the last for all above.
        far: distance to the nearest measured kernel beyond which a kernel is out of range.
        workspace: what each measured kernel allocated beside its results, as a share of what it reads and writes,
            (rows,); UNMEASURED where nobody looked. Empty for groups without.
        host_us: what the host takes to issue each measured kernel among others, (rows,); empty for groups of which that
            was not measured, as of what Triton launches.
        host_trees: the logarithm of what the host takes to issue a kernel that was not measured; None where nothing
            tells, as in files of earlier versions: then the nearest measured kernels do.
        sizes: scaled logarithms of the bound, ascending, that part small kernels from large ones.
        limits: (len(sizes) + 1, 2), the least and the largest logarithm that networks and trees are believed for
            kernels of such a size: what was measured of that size, whatever its operators.
        trees_share: how much of a say the trees have beside the networks, 0 to 1.
        places: what `places_of` tells of the memory, (rows,), so that little of it need be read; empty in files of
            earlier versions.
    """

    names: tuple[str, ...]
    mean: Array
    scale: Array
    networks: tuple[NeuralNetwork, ...]
    memory: Steps
    residual: Array
    reach: float
    edges: Array
    widths: Array
    far: float
    workspace: Array = field(default_factory=none_measured)
    host_us: Array = field(default_factory=none_measured)
    known: Array = field(default_factory=none_measured)
    trees: Trees | None = None
    host_trees: Trees | None = None
    sizes: Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    limits: Array = field(default_factory=lambda: np.array([LARGEST_RANGE], dtype=np.float32))
    places: Array = field(default_factory=none_measured)
    trees_share: float = TREES_SHARE

    def vectors(self, features: Sequence[Mapping[str, float]]) -> Array:
        """Scaled feature vectors, (rows, features).

        Raises:
            ProfileError: a feature that the model was trained on is missing, or one is new.
        """
        for named in features[:1]:
            odd = sorted((set(named) ^ set(self.names)) - (OPTIONAL - set(self.names)))
            if odd:
                raise ProfileError(
                    f"the predictor was trained on other features ({', '.join(odd[:4])}); train it again"
                )
        raw = np.array([[named[name] for name in self.names] for named in features], dtype=np.float32)
        return scaled(raw, self.mean, self.scale)

    def expected(self, x: Array) -> Array:
        """What networks and trees say of scaled vectors, held within what kernels of such sizes took when measured."""
        mean = np.mean([network.forward(x) for network in self.networks], axis=0)
        if self.trees is not None:
            mean = (1.0 - self.trees_share) * mean + self.trees_share * self.trees.forward(x)
        low, high = self.limits[np.searchsorted(self.sizes, size_of(x, self.names))].T
        return np.asarray(np.clip(mean, low, high), dtype=np.float32)

    @property
    def measured(self) -> Array:
        """Scaled features of the measured kernels, (rows, features)."""
        return np.asarray(self.memory * STEP32, dtype=np.float32)

    def log_ratio(self, x: Array) -> tuple[Array, Array]:
        """Logarithm of time over bound for scaled vectors, and each one's distance to the nearest measured kernel."""
        found = self.recollect(x)
        return found.log_ratio, found.distance

    def recollect(self, x: Array) -> Recollection:
        """What is told of scaled vectors; of one equal to a measured kernel what was measured, without computing."""
        host_us = self.host_us if len(self.host_us) else np.full(len(self.memory), USUAL_HOST_US, dtype=np.float32)
        remembered = self.known if len(self.known) else self.residual
        places = self.places if len(self.places) else places_of(self.memory)
        (log_ratio, own), nearest = recall(x, self.memory, places, (remembered, host_us))
        if not len(self.known):
            log_ratio += self.expected(x)
        new = np.flatnonzero(np.isnan(nearest))
        measured = self.measured if len(new) else none_measured()
        for rows in portions(new, len(self.memory)):
            apart = distances(x[rows], measured)
            correction, nearest[rows] = weigh(apart, self.residual, self.reach)
            log_ratio[rows] = self.expected(x[rows]) + correction
            own[rows] = usual(apart, host_us) if self.host_trees is None else host_us_of(self.host_trees, x[rows])
        return Recollection(log_ratio, nearest, own)

    def workspace_share(self, x: Array) -> Array:
        """Workspaces of scaled vectors as shares of what the kernels read and write, (rows,).

        The median of the ALIKE nearest kernels, as a library chooses one algorithm or another and nothing between; that
        of an equal one where there is one.
        """
        known = self.workspace >= 0 if len(self.workspace) else np.zeros(len(self.memory), dtype=bool)
        if not known.any():
            return np.zeros(len(x), dtype=np.float32)
        measured, share = self.measured[known], self.workspace[known]
        parts = portions(np.arange(len(x)), len(measured))
        return np.concatenate([usual(distances(x[rows], measured), share) for rows in parts])


@dataclass(frozen=True, slots=True)
class Recollection:
    """What is known or told of kernels: arrays of (rows,).

    Attributes:
        log_ratio: logarithm of time over bound.
        distance: to the nearest measured kernel.
        host_us: what the host takes to issue each.
    """

    log_ratio: Array
    distance: Array
    host_us: Array


def size_of(x: Array, names: Sequence[str]) -> Array:
    """The scaled logarithm of each kernel's bound, (rows,); zeros if that feature was left out."""
    return x[:, names.index(BOUND)] if BOUND in names else np.zeros(len(x), dtype=np.float32)


def host_us_of(trees: Trees, x: Array) -> Array:
    """What trees say that the host takes to issue kernels of scaled vectors, microseconds; (rows,)."""
    return np.asarray(np.exp(np.clip(trees.forward(x), *HOST_RANGE)), dtype=np.float32)
