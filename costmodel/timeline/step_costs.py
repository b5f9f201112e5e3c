"""Host costs of a training step beyond those of a forward pass, and the fit that learns them from measured steps.

The forward pass has the costs of `costmodel.timeline.host_counts`, fitted in inference. Here are costs of autograd, of
the compiled backward pass and of the optimizer. They are fitted to 15 steps in three modes that an H200 ran behind a
host of half the speed of the profile's (`scripts/training_accuracy.py`), scaled to that one by its probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.timeline.queue import Costs

STEP_COSTS: Mapping[str, float] = {
    "eager": 1.42,
    "compiled": 1.33,
    "replayed": 2.14,
    "record": 2.14,
    "node": 2.58,
    "backward_dispatch": 0.65,
    "accumulate": 3.03,
    "optimizer_call": 19.3,
    "optimizer_tensor": 0.46,
    "optimizer_parameter": 3.03,
    "counted_step": 3.0,
    "saved": 1.08,
    "backward_start": 140.0,
    "replay_tensor": 0.86,
    "start": 83.0,
}
"""Microseconds a count.

- `eager`, `compiled`, `replayed`: host time that the costs of inference explain, of eager operators, of compiled graphs
  and of their replays
- `record`: an operator of a forward pass that autograd records
- `node`: an autograd node of a backward pass
- `backward_dispatch`: host time of its kernels over that of calling them from Python
- `accumulate`: a parameter whose gradient is kept
- `optimizer_call`: a multi-tensor operator; `optimizer_tensor`: a tensor in one of its lists; `optimizer_parameter`: a
  parameter that `Optimizer.step` visits; `counted_step`: one with a count of steps on the CPU
- `saved`: a tensor that a compiled forward graph saves; `backward_start`: the entry of a compiled backward graph
- `replay_tensor`: a tensor that the replay of a CUDA graph makes again
- `start`: the rest of a step: clearing gradients, the call of the engine
"""


SCALED = ("eager", "compiled", "replayed")
"""Factors of host times that are those of the host already."""


def at_host(costs: Costs, speed: float) -> dict[str, float]:
    """The costs on a host of a speed relative to the profile's."""
    return {name: amount if name in SCALED else amount / speed for name, amount in costs.items()}


@dataclass(frozen=True, slots=True)
class StepRow:
    """A measured host time of a step in one mode.

    Attributes:
        counts: counts by the names of STEP_COSTS.
        measured_us: measured host time, scaled to the profile's host.
    """

    counts: Mapping[str, float]
    measured_us: float


FIRST_COSTS: Mapping[str, float] = {
    **dict.fromkeys(("eager", "compiled", "replayed"), 1.0),
    "record": 2.0,
    "node": 3.0,
    "backward_dispatch": 0.6,
    "accumulate": 1.5,
    "optimizer_call": 15.0,
    "optimizer_tensor": 0.25,
    "optimizer_parameter": 1.5,
    "counted_step": 3.0,
    "saved": 0.7,
    "backward_start": 90.0,
    "replay_tensor": 0.5,
    "start": 60.0,
}
"""Costs that a fit starts from, assumed before any step was measured, from published profiles of eager training."""
PRIOR_WEIGHT = 0.3
"""Weight of a cost's default beside a measured step, when costs are relative to their defaults."""


def fit_step_costs(rows: Sequence[StepRow], priors: Costs = FIRST_COSTS) -> dict[str, float]:
    """Fit the costs by least squares of relative errors, with the defaults as a weak prior; none becomes negative.

    Args:
        rows: measured steps, of any modes.
        priors: defaults.
    """
    from scipy.optimize import nnls

    names = list(priors)
    scale = np.array([priors[name] for name in names])
    matrix = np.array([[row.counts.get(name, 0.0) for name in names] for row in rows]) * scale
    wanted = np.array([row.measured_us for row in rows])
    weights = 1.0 / np.array([row.measured_us for row in rows])
    weak = PRIOR_WEIGHT * np.eye(len(names))
    left = np.vstack([matrix * weights[:, None], weak])
    right = np.concatenate([wanted * weights, PRIOR_WEIGHT * np.ones(len(names))])
    factors, _ = nnls(left, right)
    return {name: float(factor * one) for name, factor, one in zip(names, factors, scale, strict=True)}
