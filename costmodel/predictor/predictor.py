"""Prediction of device time of kernels by small neural networks and boosted trees, evaluated with NumPy.

Each group of kernels (convolutions, matmuls, ...) has an ensemble of multilayer perceptrons and boosted trees for the
logarithm of time over the roofline bound. The measured kernels are kept beside them. A kernel equal to a measured one
is recalled; a kernel near measured ones is corrected by their residuals. A kernel of an operator without a cost rule
takes the time of its traffic at the device's bandwidth, and a launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.features import UNRULED, Roofline, featurize, group_of, launches_of
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.traffic import traffic_bytes
from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.group_model import LARGEST_RANGE, USUAL_HOST_US, GroupModel
from costmodel.predictor.neighbours import EXACT
from costmodel.predictor.support import UNSUPPORTED_WIDTH, hardly_measured

UNMEASURED_WIDTH = math.log(4.0)
"""Least half-width for a kernel in a precision that was never measured."""

LAUNCH_US = 6.0
"""Host time of each further launch of a library call that makes many, without Python in between, microseconds.

An LSTM of 320 launches took 7 us each on a host that needs 8.3 us for a launch from Python (`docs/data`, crnn)."""
UNRULED_RANGE = 8.0
"""Upper end of the interval of a kernel without a cost rule, over the time of its traffic."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Predicted device time of a kernel with its 90 % interval, and host time to launch it; microseconds.

    `in_range` is false where the prediction is extrapolated (`GroupModel.in_range`).
    """

    us: float
    low_us: float
    high_us: float
    in_range: bool
    host_us: float = USUAL_HOST_US


@dataclass(frozen=True, slots=True)
class Predictor:
    """Models of the groups of kernels, and the ceilings of the device that they were trained on."""

    groups: Mapping[str, GroupModel]
    roofline: Roofline
    multiprocessors: int

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
        return [estimate for estimate in estimates if estimate is not None]

    def with_curves(self, curves: Mapping[str, ErrorCurve]) -> Predictor:
        """The predictor with error curves by group; a group without keeps its own."""
        groups = {name: replace(model, curve=curves.get(name, model.curve)) for name, model in self.groups.items()}
        return replace(self, groups=groups)

    def workspace_bytes(self, kernels: Sequence[Kernel]) -> list[int]:
        """Bytes that each kernel allocates beside its results; 0 for groups without measured workspaces."""
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
        if group == UNRULED:
            least = [self.roofline.least_us(kernel) for kernel, _ in chosen]
            return [Estimate(us, us, us * UNRULED_RANGE, in_range=False) for us in least]
        bounds = [self.roofline.bound_us(kernel) for kernel, _ in chosen]
        model = self.groups.get(group)
        if model is None:
            hosts = (max(USUAL_HOST_US, LAUNCH_US * launches_of(kernel)) for kernel, _ in chosen)
            return [
                Estimate(bound * 2, bound, bound * 8, in_range=False, host_us=host_us)
                for bound, host_us in zip(bounds, hosts, strict=True)
            ]
        features = [featurize(kernel, self.roofline, self.multiprocessors, position) for kernel, position in chosen]
        x = model.vectors(features)
        found = model.recollect(x)
        new = found.distance >= EXACT
        alone = np.zeros(len(x), dtype=bool)
        alone[new] = hardly_measured(group, model.names, model.scale, x[new], model.memory)
        estimates = []
        for (kernel, _), bound, log_ratio, distance, host_us, is_alone in zip(
            chosen, bounds, found.log_ratio, found.distance, found.host_us, alone, strict=True
        ):
            us = bound * math.exp(float(np.clip(log_ratio, *LARGEST_RANGE)))
            known = self.roofline.knows(kernel)
            width = max(model.half_width(us, float(distance)), 0.0 if known else UNMEASURED_WIDTH)
            in_range = known and not is_alone and model.in_range(us, float(distance))
            above = max(width, UNSUPPORTED_WIDTH) if is_alone else width
            estimates.append(Estimate(us, us / math.exp(width), us * math.exp(above), in_range, float(host_us)))
        return estimates
