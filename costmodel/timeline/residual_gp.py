"""Residual model: a correction of a model's latency, from the residuals of similar measured models.

The residual of a measured model, the logarithm of its latency over the timeline's, repeats from machine to machine, and
is similar in similar models. A Gaussian process over a few properties of a model predicts it: the model discrepancy of
Kennedy and O'Hagan, "Bayesian calibration of computer models" (2001). A model unlike all measured ones is not
corrected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from costmodel.errors import ProfileError
from costmodel.ir import HALF_PRECISION
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.network import OUTLYING, Array, scaled
from costmodel.tensor_file import Tensors, finite_float32, read_tensors, write_tensors
from costmodel.timeline.queue import Timing
from costmodel.timeline.timed_trace import TimedTrace

FARTHEST = 0.5
"""Largest correction of the logarithm of a latency, whatever the file holds."""
LEAST_US = 1e-3
"""Least value before taking a logarithm, as a model may launch nothing."""
PROPERTIES = (
    "calls",
    "eager_host_share",
    "compiled_host_share",
    "kinds",
    "classes",
    "views",
    "modules",
    "queries",
    "parameters",
    "device_us",
    "concentration",
    "fused",
    "footprint",
    "half",
)
"""Names of the properties that models are compared by, as computed by `properties_of`."""


def properties_of(eager: TimedTrace, compiled: TimedTrace) -> Array:
    """PROPERTIES of a model, (properties,); logarithms except for the two shares. None depends on the host.

    - `calls`: eager kernel calls; `kinds`, `classes`: kinds and dispatch classes among them
    - `eager_host_share`, `compiled_host_share`: isolated host time over device time
    - `views`, `modules`, `queries`, `parameters`, `device_us`: for each eager call
    - `concentration`: sum of squared shares of the compiled device time (Herfindahl's index)
    - `fused`: share of the compiled device time in fused kernels
    - `footprint`: bytes that every pass touches again
    - `half`: share of the compiled device time in half-precision library calls, which are faster among other kernels
      than when timed alone repeatedly

    Args:
        eager: eager issue trace.
        compiled: compiled issue trace.
    """
    trace, calls = eager.trace, max(1, len(eager.trace.kernels))
    shares = [sum(one.host_us) / max(LEAST_US, sum(one.device_us)) for one in (eager, compiled)]
    counts = trace.views, trace.calls.modules, trace.calls.queries, compiled.trace.parameters
    each = [(1 + count) / calls for count in counts]
    device_us = sum(eager.device_us) / calls
    whole_us = max(LEAST_US, sum(compiled.device_us))
    kernels = list(zip(compiled.trace.kernels, compiled.device_us, strict=True))
    concentration = sum((us / whole_us) ** 2 for _, us in kernels)
    fused = sum(us for kernel, us in kernels if kernel.backend == "triton") / whole_us
    half = sum(us for kernel, us in kernels if kernel.backend != "triton" and in_half(kernel)) / whole_us
    before = calls, *shares, eager.kinds, eager.classes, *each, device_us, concentration
    logs = [math.log(max(LEAST_US, amount)) for amount in (*before, trace.footprint)]
    return np.array([*logs[:-1], fused, logs[-1], half], dtype=np.float32)


def in_half(kernel: Kernel) -> bool:
    """Whether a kernel computes in half precision."""
    return kernel.anchor.type.dtype in HALF_PRECISION


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """A Gaussian process over models: the covariance of two is sd^2 exp(-distance^2 / (2 length^2)).

    Attributes:
        sd: standard deviation of residuals.
        length: length scale in scaled properties.
        noise: standard deviation of the noise of a residual.
        weights: dual coefficients of the measured models, (models,).
    """

    sd: float
    length: float
    noise: float
    weights: Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32))

    def mean(self, square: Array) -> Array:
        """Posterior means, (rows,), for squared distances to the measured models, (rows, models)."""
        return np.asarray(self.covariance(square) @ self.weights, dtype=np.float32)

    def covariance(self, square: Array) -> Array:
        """Covariances of models at squared distances."""
        return np.asarray(self.sd**2 * np.exp(-0.5 * square / self.length**2))


@dataclass(frozen=True)
class ResidualModel:
    """Gaussian processes over properties of models, by mode; a mode without one is not corrected.

    Attributes:
        mean, scale: mean and standard deviation of the properties, (properties,).
        models: scaled properties of the measured models, (models, properties).
        processes: processes by mode.
    """

    mean: Array
    scale: Array
    models: Array
    processes: Mapping[str, GaussianProcess]

    def correct(self, timings: Mapping[str, Timing], eager: TimedTrace, compiled: TimedTrace) -> dict[str, Timing]:
        """Times of a call in every mode, multiplied by the predicted residual.

        Host and device time are multiplied like the latency, as a measured latency does not show which one is off.
        """
        if not self.processes:
            return dict(timings)
        square = squares(scaled(properties_of(eager, compiled)[None], self.mean, self.scale), self.models)
        logs = {mode: float(process.mean(square)[0]) for mode, process in self.processes.items()}
        factors = {mode: math.exp(min(FARTHEST, max(-FARTHEST, log))) for mode, log in logs.items()}
        return {mode: timing.times(factors.get(mode, 1.0)) for mode, timing in timings.items()}

    def describe(self) -> dict[str, dict[str, float]]:
        """Hyperparameters by mode, for the profile's summary."""
        return {
            mode: {"sd": process.sd, "length": process.length, "noise": process.noise}
            for mode, process in self.processes.items()
        }

    def save(self, path: Path) -> str:
        """Write a safetensors file and return its SHA-256."""
        tensors = {"mean": self.mean, "scale": self.scale, "models": self.models}
        for mode, process in self.processes.items():
            tensors[f"{mode}/weights"] = process.weights
            tensors[f"{mode}/kernel"] = np.array([process.sd, process.length, process.noise], dtype=np.float32)
        return write_tensors(path, tensors, {"properties": PROPERTIES})

    @classmethod
    def load(cls, path: Path, sha256: str | None = None) -> ResidualModel:
        """Read a file written by `save`, from which nothing is executed.

        Raises:
            ProfileError: the file is missing or damaged, or has another hash, schema or shape.
        """
        return read_tensors(path, "whole-model", cls._parse, sha256)

    @classmethod
    def _parse(cls, about: Mapping[str, object], loaded: Tensors) -> ResidualModel:
        if about["properties"] != list(PROPERTIES):
            raise ProfileError("whole models have other properties than this version's; train it again")
        tensors = {name: finite_float32(name, tensor, *_possible(name)) for name, tensor in loaded.items()}
        mean, scale, models = (tensors[name] for name in ("mean", "scale", "models"))
        modes = [name.partition("/")[0] for name in tensors if name.endswith("/weights")]
        processes = {}
        for mode in modes:
            sd, length, noise = (float(value) for value in tensors[f"{mode}/kernel"])
            processes[mode] = GaussianProcess(sd, length, noise, tensors[f"{mode}/weights"])
        width = (len(PROPERTIES),)
        fit = mean.shape == scale.shape == models.shape[1:] == width
        if not fit or any(one.weights.shape != models.shape[:1] for one in processes.values()):
            raise ProfileError("the tensors of the whole models do not fit together")
        return cls(mean, scale, models, processes)


def _possible(name: str) -> tuple[float, float]:
    """Least and largest accepted value of a tensor: far wider than fitted ones, and no sum overflows."""
    if name == "models":
        return -OUTLYING, OUTLYING
    return (1e-6, 1e3) if name == "scale" or name.endswith("/kernel") else (-1e9, 1e9)


def squares(x: Array, models: Array) -> Array:
    """Squared Euclidean distances, (rows of x, rows of models)."""
    return np.asarray(((x[:, None] - models[None]) ** 2).sum(-1))


def no_residuals() -> ResidualModel:
    """A residual model without processes, which corrects nothing."""
    empty = np.zeros(len(PROPERTIES), dtype=np.float32)
    return ResidualModel(empty, np.ones_like(empty), np.zeros((0, len(PROPERTIES)), dtype=np.float32), {})
