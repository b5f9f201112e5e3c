"""One measured model: its record, and the medians read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.training.families import family_of, fold_of

REPLAYED = "reduce-overhead"
"""Mode whose calls replay a CUDA graph: the host hardly affects their latency."""
WALLS: Mapping[str, str] = {"default": "default_us", REPLAYED: "graph_us"}
"""Names of the latencies in the modes of torch.compile."""
COLUMNS: Mapping[str, str] = {"eager": "eager", "default": "default", REPLAYED: "graph"}
"""Prefixes of the columns of each mode."""
EAGER_ALONE = "eager"
"""Name of rounds of eager calls that were measured beside no compiled mode."""
PROBES = "probes_us"
"""Name of a process's own host probes, before each round and after the last."""
HOST_TIMES: Mapping[str, str] = {mode: f"{mode}_host_us" for mode in ("eager", *WALLS)}
"""Names of the host times in each mode."""


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model measured at one batch size, precision and layout, by one process.

    Attributes:
        model: name of the model.
        batch_size: images in a call.
        precision: dtype of parameters and inputs.
        layout: `nchw` or `nhwc`.
        medians: median times by name, microseconds.
        record: the record in the file.
        host_speed: speed of the host during the measurement, relative to `usual_probe_us` of the file; 1 where no probe
            was taken.
    """

    model: str
    batch_size: int
    precision: str
    layout: str
    medians: Mapping[str, float]
    record: Mapping[str, Any]
    host_speed: float = 1.0

    @property
    def family(self) -> str:
        """Family that is held out when this model is predicted."""
        return family_of(self.model)

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the case, whichever machine and process measured it."""
        return self.model, self.batch_size, self.precision, self.layout, self.record.get("img_size")

    @property
    def environment(self) -> int:
        """Index of the machine, or environment, among those of the file."""
        return int(self.record.get("environment", 0))

    @property
    def session(self) -> object:
        """Identity of the uninterrupted run on one host that the measurement belongs to."""
        return self.environment, self.record.get("session")

    @property
    def probe_us(self) -> float | None:
        """Duration of the host probe, microseconds; None where none was taken."""
        return float(self.record["probe_us"]) if "probe_us" in self.record else None

    @property
    def fold(self) -> int:
        """Fold that tests its family."""
        return fold_of(self.family)
