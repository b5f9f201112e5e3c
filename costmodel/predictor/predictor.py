"""Prediction of device time of kernels by small neural networks and boosted trees, evaluated with NumPy.

Each group of kernels (convolutions, matmuls, ...) has an ensemble of multilayer perceptrons and boosted trees for the
logarithm of time over the roofline bound. A measured kernel is recalled by its key; a kernel near measured ones is
corrected by their residuals. A kernel of an operator without a cost rule takes the time of its traffic at the device's
bandwidth, and a launch.

A predictor may have a base, the predictor of another device: its groups then predict the logarithm of time over the
base's prediction, with that prediction among the features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.features import IN_TF32, TRAINING_GROUPS, UNRULED, Roofline, featurize, group_of, launches_of
from costmodel.features.scalars import log2_of
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.group_model import LARGEST_RANGE, USUAL_HOST_US, GroupModel
from costmodel.predictor.other_precision import Chosen, tf32_estimates, with_twins
from costmodel.predictor.support import UNSUPPORTED_FACTOR, hardly_measured
from costmodel.predictor.training_estimates import training_estimates

UNMEASURED_FACTOR = 4.0
"""Least factor from the prediction to the ends of its interval for a precision that was never measured."""

LAUNCH_US = 6.0
"""Host time of each further launch of a library call that makes many, without Python in between, microseconds.

An LSTM of 320 launches took 7 us each on a host that needs 8.3 us for a launch from Python (`docs/data`, crnn)."""
UNRULED_RANGE = 8.0
"""Upper end of the interval of a kernel without a cost rule, over the time of its traffic."""


LOG_BASE_US = "log_base_us"
"""Feature with the base's prediction, which only predictors with a base have."""
BASE_ALONE_WIDTH = 0.3
"""Least half-width of a kernel of a group that the base alone predicts: devices of one generation differ by up to 1.35
in what their bandwidths and clocks do not explain."""


@dataclass(frozen=True, slots=True)
class Base:
    """Predictor of another device, with the name of its profile and the hash of its file."""

    name: str
    sha256: str
    predictor: Predictor


@dataclass(frozen=True, slots=True)
class Predictor:
    """Models of the groups of kernels, and the ceilings of the device that they were trained on.

    Attributes:
        groups: model of each group.
        roofline: ceilings of the device.
        multiprocessors: multiprocessors of the device.
        base: predictor of another device that times are relative to; None if they are relative to the roofline.
    """

    groups: Mapping[str, GroupModel]
    roofline: Roofline
    multiprocessors: int
    base: Base | None = None

    def predict(self, kernels: Sequence[Kernel], positions: Sequence[float]) -> list[Estimate]:
        """Estimates of kernels, in order.

        Args:
            kernels: kernels to predict.
            positions: relative depth of each in the model, from 0 to 1.

        Raises:
            ProfileError: the predictor was trained on other features than this version computes.
        """
        estimates: list[Estimate | None] = [None] * len(kernels)
        by_group: dict[str, list[int]] = {}
        for index, kernel in enumerate(kernels):
            by_group.setdefault(group_of(kernel), []).append(index)
        for group, indices in by_group.items():
            chosen = [(kernels[index], positions[index]) for index in indices]
            for index, estimate in zip(indices, self._predict_group(group, chosen), strict=True):
                estimates[index] = estimate
        own = [estimate for estimate in estimates if estimate is not None]
        return with_twins(list(zip(kernels, positions, strict=True)), own, self._predict_chosen)

    def with_curves(self, curves: Mapping[str, ErrorCurve]) -> Predictor:
        """The predictor with error curves by group; a group without keeps its own."""
        groups = {name: replace(model, curve=curves.get(name, model.curve)) for name, model in self.groups.items()}
        return replace(self, groups=groups)

    def workspace_bytes(self, kernels: Sequence[Kernel]) -> list[int]:
        """Bytes that each kernel allocates beside its results; 0 for groups without measured workspaces."""
        keys = [kernel.key for kernel in kernels]
        distinct = dict(zip(keys, kernels, strict=True))
        found = dict.fromkeys(keys, 0)
        if self.base is not None:
            found |= dict(zip(keys, self.base.predictor.workspace_bytes(kernels), strict=True))
        for group, model in self.groups.items():
            chosen = {key: kernel for key, kernel in distinct.items() if group_of(kernel) == group}
            if not chosen or not len(model.workspace):
                continue
            rows = model.recall.find(list(chosen)).tolist()
            recalled = [None if row < 0 else model.recall.workspace_bytes_at(row) for row in rows]
            found |= {key: size for key, size in zip(chosen, recalled, strict=True) if size is not None}
            new = [kernel for kernel, size in zip(chosen.values(), recalled, strict=True) if size is None]
            found |= self._new_workspaces(model, new)
        return [found[key] for key in keys]

    def _new_workspaces(self, model: GroupModel, kernels: Sequence[Kernel]) -> dict[tuple[str, str], int]:
        """Workspaces of kernels without a measured one, by key."""
        if not kernels:
            return {}
        features = [featurize(one, self.roofline, self.multiprocessors, 0.5) for one in kernels]
        shares = model.workspace_share(model.vectors(features))
        sizes = [round(float(share) * one.traffic_bytes) for one, share in zip(kernels, shares, strict=True)]
        return dict(zip([one.key for one in kernels], sizes, strict=True))

    def _predict_group(self, group: str, chosen: Sequence[tuple[Kernel, float]]) -> list[Estimate]:
        if group == UNRULED:
            least = [self.roofline.least_us(kernel) for kernel, _ in chosen]
            return [Estimate(us, us, us * UNRULED_RANGE, in_range=False) for us in least]
        model = self.groups.get(group)
        if model is None:
            return self._without_model(chosen)
        rows = model.recall.find([kernel.key for kernel, _ in chosen]).tolist()
        new = iter(self._new(model, [one for one, row in zip(chosen, rows, strict=True) if row < 0]))
        known = iter(_recalled(model, [row for row in rows if row >= 0]))
        return [next(new if row < 0 else known) for row in rows]

    def _without_model(self, chosen: Sequence[tuple[Kernel, float]]) -> list[Estimate]:
        """Estimates of kernels of a group that was not measured: the base's, else a multiple of the bound."""
        if self.base is not None:
            return [_widened(one, BASE_ALONE_WIDTH) for one in self._by_base(chosen)]
        if group_of(chosen[0][0]) in TRAINING_GROUPS:
            return training_estimates(chosen, self._predict_chosen, self.roofline, self.multiprocessors)
        if group_of(chosen[0][0]).endswith(IN_TF32):
            return tf32_estimates(chosen, self._predict_chosen, self.roofline.floor_us)
        bounds = [self.roofline.bound_us(kernel) for kernel, _ in chosen]
        hosts = (max(USUAL_HOST_US, LAUNCH_US * launches_of(kernel)) for kernel, _ in chosen)
        return [
            Estimate(bound * 2, bound, bound * 8, in_range=False, host_us=host_us)
            for bound, host_us in zip(bounds, hosts, strict=True)
        ]

    def _predict_chosen(self, chosen: Chosen) -> list[Estimate]:
        return self.predict([kernel for kernel, _ in chosen], [position for _, position in chosen])

    def _by_base(self, chosen: Sequence[tuple[Kernel, float]]) -> list[Estimate]:
        """The base's estimates."""
        assert self.base is not None
        return self.base.predictor._predict_chosen(chosen)

    def _new(self, model: GroupModel, chosen: Sequence[tuple[Kernel, float]]) -> list[Estimate]:
        """Estimates of kernels that were not measured."""
        if not chosen:
            return []
        features = [featurize(kernel, self.roofline, self.multiprocessors, position) for kernel, position in chosen]
        known = self._by_base(chosen) if self.base else [self._bound(kernel) for kernel, _ in chosen]
        if self.base:
            features = [named | {LOG_BASE_US: log2_of(one.us)} for named, one in zip(features, known, strict=True)]
        x = model.vectors(features)
        log_ratio, distances = model.log_ratio(x)
        alone = hardly_measured(model.names, model.scale, x, model.regimes, model.regime_counts).tolist()
        hosts = model.host_us(x).tolist() if self.base is None or model.host_trees else [one.host_us for one in known]
        ratios = map(math.exp, np.clip(log_ratio, *LARGEST_RANGE).tolist())
        times = [one.us * ratio for one, ratio in zip(known, ratios, strict=True)]
        widths = model.half_widths(np.array(times), distances.astype(np.float64))
        near = model.in_range(widths, distances.astype(np.float64)).tolist()
        estimates = []
        for one, us, width, is_near, host_us, is_alone in zip(
            known, times, widths.tolist(), near, hosts, alone, strict=True
        ):
            factor = math.exp(width)
            above = max(factor, UNSUPPORTED_FACTOR) if is_alone else factor
            in_range = one.in_range and not is_alone and is_near
            low_us, high_us = us / max(factor, one.us / one.low_us), us * max(above, one.high_us / one.us)
            estimates.append(Estimate(us, low_us, high_us, in_range, host_us))
        return estimates

    def _bound(self, kernel: Kernel) -> Estimate:
        """The roofline bound, as the time that a group without a base is relative to."""
        us, known = self.roofline.bound_us(kernel), self.roofline.knows(kernel)
        factor = 1.0 if known else UNMEASURED_FACTOR
        return Estimate(us, us / factor, us * factor, in_range=known)


def _widened(estimate: Estimate, least: float) -> Estimate:
    """Estimate whose interval has at least a half-width."""
    factor = max(math.exp(least), estimate.high_us / estimate.us)
    return replace(estimate, low_us=estimate.us / factor, high_us=estimate.us * factor)


def _recalled(model: GroupModel, rows: Sequence[int]) -> list[Estimate]:
    """Estimates of measured kernels."""
    times = [model.recall.us_at(row) for row in rows]
    hosts = [model.recall.host_us_at(row) for row in rows]
    factors = map(math.exp, model.half_widths(np.array(times), np.zeros(len(rows))).tolist())
    return [
        Estimate(us, us / factor, us * factor, in_range=True, host_us=USUAL_HOST_US if host_us is None else host_us)
        for us, factor, host_us in zip(times, factors, hosts, strict=True)
    ]
