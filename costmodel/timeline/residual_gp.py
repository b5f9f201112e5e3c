"""What the timeline leaves unexplained of whole models, as the measured ones that are like a model tell it.

Kernels and costs by cause add up to a latency; what measured models took beyond or below it repeats from machine to
machine, and is alike in models that are alike. A Gaussian process over a few properties of a model tells it, added to
the logarithm of the latency: the model discrepancy of Kennedy and O'Hagan, "Bayesian calibration of computer models"
(2001). A model unlike all that were measured is left as the timeline has it.
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
"""No logarithm of a latency is corrected by more, whatever a file says."""
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
"""What models are alike by; `properties_of` says what each is."""
EARLIER = 13
"""So many of them had files of earlier versions: their models count as having nothing of the others."""


def properties_of(eager: TimedTrace, compiled: TimedTrace) -> Array:
    """A model's PROPERTIES, (properties,): logarithms, but for two shares.

    The number of eager calls; what calls take the host over what they take the device, eager and compiled; kinds of
    kernels among the eager calls, and dispatch classes, which tell sizes of convolutions apart; views, calls of
    modules, queries of tensors and parameters for each eager call; its device time; how much of the compiled device
    time is in few kernels (the sum of squared shares, the inverse of as many kernels alike: Herfindahl's index); the
    share of it that is in fused kernels; the bytes that every pass comes back to; and the share of compiled device time
    in half-precision calls of libraries, which take less among other kernels than timed alone over and over. All of it
    holds for any host.

    Args:
        eager: what is issued eagerly.
        compiled: what compiled code issues.
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
    """Whether what a kernel computes is in half precision."""
    return kernel.anchor.type.dtype in HALF_PRECISION


LEAST_US = 1e-3
"""No amount is taken for less: a model may issue nothing."""


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """A Gaussian process over models: the covariance of two is sd^2 exp(-distance^2 / (2 length^2)).

    Attributes:
        sd: how far models are from the timeline, as logarithms.
        length: distance of scaled properties over which they are alike.
        noise: what else a measured latency is off by, a standard deviation of logarithms.
        weights: what the covariances with the measured models are multiplied by and summed, (models,).
    """

    sd: float
    length: float
    noise: float
    weights: Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32))

    def mean(self, square: Array) -> Array:
        """What it tells of models, (rows,), by their squared distances to the measured ones, (rows, models)."""
        return np.asarray(self.covariance(square) @ self.weights, dtype=np.float32)

    def covariance(self, square: Array) -> Array:
        """Of two models at squared distances."""
        return np.asarray(self.sd**2 * np.exp(-0.5 * square / self.length**2))


@dataclass(frozen=True)
class ResidualModel:
    """What measured models tell of others beyond the timeline, by mode; a mode without a process is left as it is.

    Attributes:
        mean, scale: of the properties; vectors are centred and divided by them, (properties,).
        models: scaled properties of the measured cases, (models, properties).
        processes: by mode of execution.
    """

    mean: Array
    scale: Array
    models: Array
    processes: Mapping[str, GaussianProcess]

    def correct(self, timings: Mapping[str, Timing], eager: TimedTrace, compiled: TimedTrace) -> dict[str, Timing]:
        """What a call takes in every mode, corrected by what measured models like this one took; microseconds.

        Host and device time are multiplied as the latency is: which of them is off nobody can tell from a latency.
        """
        if not self.processes:
            return dict(timings)
        square = squares(scaled(properties_of(eager, compiled)[None], self.mean, self.scale), self.models)
        logs = {mode: float(process.mean(square)[0]) for mode, process in self.processes.items()}
        factors = {mode: math.exp(min(FARTHEST, max(-FARTHEST, log))) for mode, log in logs.items()}
        return {mode: timing.times(factors.get(mode, 1.0)) for mode, timing in timings.items()}

    def describe(self) -> dict[str, dict[str, float]]:
        """Its processes in numbers, by mode, as a card shows them."""
        return {
            mode: {"sd": process.sd, "length": process.length, "noise": process.noise}
            for mode, process in self.processes.items()
        }

    def save(self, path: Path) -> str:
        """Writes it as one safetensors file; the file's SHA-256."""
        tensors = {"mean": self.mean, "scale": self.scale, "models": self.models}
        for mode, process in self.processes.items():
            tensors[f"{mode}/weights"] = process.weights
            tensors[f"{mode}/kernel"] = np.array([process.sd, process.length, process.noise], dtype=np.float32)
        return write_tensors(path, tensors, {"properties": PROPERTIES})

    @classmethod
    def load(cls, path: Path, sha256: str | None = None) -> ResidualModel:
        """Reads what `save` wrote; nothing in it is executed.

        Raises:
            ProfileError: the file is missing, damaged, of another hash, schema or shape.
        """
        return read_tensors(path, "whole-model", cls._parse, sha256)

    @classmethod
    def _parse(cls, about: Mapping[str, object], loaded: Tensors) -> ResidualModel:
        if about["properties"] not in (list(PROPERTIES), list(PROPERTIES[:EARLIER])):
            raise ProfileError("whole models are told apart by other properties than this version's; train it again")
        tensors = {name: finite_float32(name, tensor, *_possible(name)) for name, tensor in loaded.items()}
        mean, scale, models = (tensors[name] for name in ("mean", "scale", "models"))
        if about["properties"] != list(PROPERTIES):
            added = (0, len(PROPERTIES) - EARLIER)
            mean, scale = np.pad(mean, added), np.pad(scale, added, constant_values=1.0)
            models = np.pad(models, ((0, 0), added))
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
    """The least and the largest value of a tensor, far wider than those of fitted ones: with them no sum overflows."""
    if name == "models":
        return -OUTLYING, OUTLYING
    return (1e-6, 1e3) if name == "scale" or name.endswith("/kernel") else (-1e9, 1e9)


def squares(x: Array, models: Array) -> Array:
    """Squared Euclidean distances, (rows of x, rows of models)."""
    return np.asarray(((x[:, None] - models[None]) ** 2).sum(-1))


def no_residuals() -> ResidualModel:
    """Nothing known: the timeline as it is."""
    empty = np.zeros(len(PROPERTIES), dtype=np.float32)
    return ResidualModel(empty, np.ones_like(empty), np.zeros((0, len(PROPERTIES)), dtype=np.float32), {})
