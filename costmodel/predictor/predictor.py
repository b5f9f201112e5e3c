"""Kernel -> microseconds, by small neural networks and trees evaluated in numpy; no scikit-learn, no code in the file.

A group of kernels (convolutions, products, ...) has an ensemble of multilayer perceptrons, and boosted trees beside it,
that give the logarithm of time over the roofline bound. What was measured is kept beside them: a kernel equal to a
measured one is recalled, a kernel like one is corrected by what was left unexplained of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from costmodel.errors import ProfileError
from costmodel.features import OPTIONAL, Roofline, featurize, group_of
from costmodel.kernels import Kernel
from costmodel.traffic import traffic_bytes
from costmodel.trees import Trees

Array = npt.NDArray[np.float32]
Steps = npt.NDArray[np.int16]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Network:
    """A multilayer perceptron with rectified linear units: weights[i] is (inputs, outputs), biases[i] (outputs,)."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def forward(self, x: Array) -> Array:
        """Outputs (rows,) for scaled features (rows, features); what scikit-learn's MLPRegressor.predict computes."""
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if layer < last:
                x = np.maximum(x, 0.0)
        return x[:, 0]

    def largest(self, most: float) -> float:
        """A bound of the magnitude of all sums in it, for features of at most such a magnitude.

        It bounds each layer's outputs by its weights' magnitudes (interval arithmetic).
        """
        bound = np.full(len(self.weights[0]), most)
        largest = most
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = bound @ np.abs(weight) + np.abs(bias)
            largest = max(largest, float(bound.max()))
        return largest


TREES_SHARE = 0.4
"""Of files of earlier versions, which do not say."""
BOUND = "log_bound_us"
"""The feature by which kernels are large or small."""
LARGEST_RANGE = (-3.0, 6.0)
"""Logarithms of time over bound beyond which no prediction goes."""
UNMEASURED = -1.0
"""The workspace of a kernel where it was not measured."""
ALIKE = 5
"""So many measured kernels tell the workspace of one that was not, or its time on the host."""
USUAL_HOST_US = 10.0
"""What the host takes to issue a kernel of which no like was measured."""


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
    networks: tuple[Network, ...]
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


def scaled(raw: Array, mean: Array, scale: Array) -> Array:
    """Features centred and divided, and held within OUTLYING: a network must not extrapolate along a rare feature."""
    return np.asarray(np.clip((raw - mean) / scale, -OUTLYING, OUTLYING), dtype=np.float32)


OUTLYING = 6.0
"""Standard deviations beyond which a feature is not told apart."""
STEP = OUTLYING / np.iinfo(np.int16).max
"""The measured kernels' scaled features are kept as whole multiples of this, in 16 bits: half the room, and a fiftieth
of the distance below which two kernels are equal."""
STEP32 = np.float32(STEP)


def in_steps(x: Array) -> Steps:
    """Scaled features as multiples of STEP, rounded."""
    return np.round(np.clip(x, -OUTLYING, OUTLYING) / STEP).astype(np.int16)


def places_of(memory: Steps) -> Array:
    """Where measured kernels lie along one direction of scaled features, (rows,)."""
    parts = portions(np.arange(len(memory)), memory.shape[1])
    return np.concatenate([memory[rows].astype(np.float32) @ _direction(memory.shape[1]) for rows in parts]) * STEP32


def _direction(features: int) -> Array:
    """A vector of length 1 that is no feature's own, (features,)."""
    direction = np.cos(np.arange(features, dtype=np.float32))
    return np.asarray(direction / np.linalg.norm(direction), dtype=np.float32)


def recall(x: Array, memory: Steps, places: Array, values: Sequence[Array]) -> tuple[list[Array], Array]:
    """The means of values of the measured kernels equal to each row of x, and the distance to the nearest of them.

    NaN for all where none is equal. Along any one direction two vectors are no further apart than they are, so those
    that are equal are sought among the few that a projection puts close by; the other distances need not be computed.
    """
    asked = x @ _direction(x.shape[1])
    order = np.argsort(places)
    reach = 1.01 * EXACT  # a projection is rounded
    first, last = (np.searchsorted(places[order], asked + side) for side in (-reach, reach))
    *means, nearest = (np.full(len(x), np.nan, dtype=np.float32) for _ in (*values, "nearest"))
    for row, (start, stop) in enumerate(zip(first, last, strict=True)):
        close = order[start:stop]
        distance = np.linalg.norm(memory[close] * STEP32 - x[row], axis=1)
        equal = close[distance < EXACT]
        if len(equal):
            nearest[row] = distance.min()
            for mean, value in zip(means, values, strict=True):
                mean[row] = value[equal].mean()
    return means, nearest


def distances(x: Array, memory: Array) -> Array:
    """Euclidean distances, (rows of x, rows of memory)."""
    squares = (x**2).sum(1)[:, None] + (memory**2).sum(1)[None, :]
    squares -= 2.0 * x @ memory.T
    np.maximum(squares, 0.0, out=squares)
    return np.asarray(np.sqrt(squares, out=squares))


AT_ONCE = 1 << 21
"""Numbers that are computed at once, as distances of kernels: some tens of megabytes with what is made of them."""


def portions(rows: Rows, numbers: int) -> Iterator[Rows]:
    """Rows in order, so few at a time that so many numbers for each of them are AT_ONCE at most."""
    count = max(1, AT_ONCE // numbers)
    return (rows[start : start + count] for start in range(0, len(rows), count))


def host_us_of(trees: Trees, x: Array) -> Array:
    """What trees say that the host takes to issue kernels of scaled vectors, microseconds; (rows,)."""
    return np.asarray(np.exp(np.clip(trees.forward(x), *HOST_RANGE)), dtype=np.float32)


HOST_RANGE = (-1.0, 9.0)
"""Logarithms of microseconds between which a call takes the host, whatever a file says."""


def usual(distance: Array, value: Array) -> Array:
    """The median value of the ALIKE nearest, or that of an equal one; (rows,)."""
    rows, count = np.arange(len(distance)), min(ALIKE, distance.shape[1])
    nearest, first = np.argpartition(distance, count - 1, axis=1)[:, :count], distance.argmin(axis=1)
    equal = distance[rows, first] < EXACT
    return np.asarray(np.where(equal, value[first], np.median(value[nearest], axis=1)), dtype=np.float32)


def weigh(distance: Array, residual: Array, reach: float) -> tuple[Array, Array]:
    """Weighted mean residual of the nearest measured kernels, shrunk to 0 with distance; and the nearest distance.

    Nadaraya-Watson regression with a Gaussian kernel of width `reach` and one pseudo-observation of residual 0.
    """
    count = min(WEIGHED, distance.shape[1])
    nearest = np.argpartition(distance, count - 1, axis=1)[:, :count]
    near = np.take_along_axis(distance, nearest, axis=1)
    weight = np.exp(-0.5 * (near / reach) ** 2)
    correction = (weight * residual[nearest]).sum(1) / (weight.sum(1) + PRIOR_WEIGHT)
    return correction.astype(np.float32), near.min(1)


EXACT = 1e-2
"""Scaled vectors closer than this are of the same kernel."""
RECALLED_WIDTH = 0.05
"""Half-width of the logarithm for a kernel equal to a measured one: so far are 96 % of the kernels that two
machines of one kind measured (`repeated` in the card of nvidia-h200)."""
WEIGHED = 8
"""So many of the nearest measured kernels correct the networks."""
PRIOR_WEIGHT = 0.3
"""Weight of "no correction", against 1 for a measured kernel at distance 0."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A kernel's predicted device time with its 90 % interval, and what the host takes to issue it; microseconds."""

    us: float
    low_us: float
    high_us: float
    in_range: bool
    host_us: float = USUAL_HOST_US


@dataclass(frozen=True, slots=True)
class Predictor:
    """Predictors by group, and the ceilings of the device that they were trained on."""

    groups: Mapping[str, GroupModel]
    roofline: Roofline
    multiprocessors: int

    def predict(self, kernels: Sequence[Kernel], positions: Sequence[float]) -> list[Estimate]:
        """One estimate a kernel, in order; `positions` are their relative depths, from 0 to 1.

        Raises:
            ProfileError: it was trained on other features than this version computes.
        """
        estimates: list[Estimate | None] = [None] * len(kernels)
        by_group: dict[str, list[int]] = {}
        for index, kernel in enumerate(kernels):
            by_group.setdefault(group_of(kernel), []).append(index)
        for group, indices in by_group.items():
            chosen = [(kernels[index], positions[index]) for index in indices]
            for index, estimate in zip(indices, self._predict_group(group, chosen), strict=True):
                estimates[index] = estimate
        return [estimate for estimate in estimates if estimate is not None]

    def workspace_bytes(self, kernels: Sequence[Kernel]) -> list[int]:
        """What each kernel is predicted to allocate beside its results, bytes; 0 where the profile does not know."""
        keys = [kernel.key for kernel in kernels]
        distinct = dict(zip(keys, kernels, strict=True))
        found = dict.fromkeys(keys, 0)
        for group, model in self.groups.items():
            chosen = {key: kernel for key, kernel in distinct.items() if group_of(kernel) == group}
            if not chosen or not len(model.workspace):
                continue
            features = [featurize(one, self.roofline, self.multiprocessors, 0.5) for one in chosen.values()]
            shares = model.workspace_share(model.vectors(features))
            for (key, kernel), share in zip(chosen.items(), shares, strict=True):
                found[key] = round(float(share) * traffic_bytes(kernel.graph))
        return [found[key] for key in keys]

    def _predict_group(self, group: str, chosen: Sequence[tuple[Kernel, float]]) -> list[Estimate]:
        bounds = [self.roofline.bound_us(kernel) for kernel, _ in chosen]
        model = self.groups.get(group)
        if model is None:
            return [Estimate(bound * 2, bound, bound * 8, in_range=False) for bound in bounds]
        features = [featurize(kernel, self.roofline, self.multiprocessors, position) for kernel, position in chosen]
        x = model.vectors(features)
        found = model.recollect(x)
        estimates = []
        for (kernel, _), bound, log_ratio, distance, host_us in zip(
            chosen, bounds, found.log_ratio, found.distance, found.host_us, strict=True
        ):
            us = bound * math.exp(float(np.clip(log_ratio, *LARGEST_RANGE)))
            width = float(model.widths[int(np.searchsorted(model.edges, us))])
            in_range = bool(distance <= model.far) and self.roofline.knows(kernel)
            recalled = min(width, RECALLED_WIDTH) if distance < EXACT else width
            spread = math.exp(recalled if in_range else 3 * width)
            estimates.append(Estimate(us, us / spread, us * spread, in_range, float(host_us)))
        return estimates
