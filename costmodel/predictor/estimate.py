"""Predicted times of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.predictor.group_model import USUAL_HOST_US


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
