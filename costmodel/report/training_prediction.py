"""Facts of a predicted training step beside those of any prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassTimes:
    """Device time of the passes of a step in one mode, and its peak memory.

    Attributes:
        forward_ms: forward pass and loss.
        backward_ms: backward pass.
        optimizer_ms: optimizer.
        peak_memory_bytes: most memory in use at once, with the workspaces of cuBLAS; None where it is not predicted.
    """

    forward_ms: float
    backward_ms: float
    optimizer_ms: float
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LayerPasses:
    """Device time of one layer in the passes of a step, microseconds.

    Attributes:
        eager_forward_us, eager_backward_us: eager forward and backward pass.
        compiled_forward_us, compiled_backward_us: compiled ones; a value that is computed again counts for the backward
            pass.
    """

    eager_forward_us: float
    eager_backward_us: float
    compiled_forward_us: float
    compiled_backward_us: float


@dataclass(frozen=True, slots=True)
class TrainingPrediction:
    """A training step.

    Attributes:
        optimizer: its optimizer.
        loss: its loss, in words.
        passes: times of its passes by mode.
        layers: times of each layer, in the order of the report's layers; in the JSON they are keys of the layers.
    """

    optimizer: str
    loss: str
    passes: Mapping[str, PassTimes]
    layers: tuple[LayerPasses, ...] = ()
