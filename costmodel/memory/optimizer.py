"""What an optimiser holds and what its step allocates, in copies of the trained parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Optimizer:
    """State that stays between steps, and temporaries of torch's default (multi-tensor) step; in copies."""

    state: int
    step: int


OPTIMIZERS: Mapping[str, Optimizer] = {
    "none": Optimizer(0, 0),
    "sgd": Optimizer(0, 0),
    "momentum": Optimizer(1, 0),
    "adam": Optimizer(2, 1),  # the square root of the second moment is made anew
}
