"""One measured model: the record of its rounds, and the columns read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.training.families import family_of, fold_of

REPLAYED = "reduce-overhead"
"""The mode whose calls replay a CUDA graph: the host hardly decides how long they take, and a process that issues
slowly is slow in the others alone."""
WALLS: Mapping[str, str] = {"default": "default_us", REPLAYED: "graph_us"}
"""Modes of torch.compile, and what the latency in each is called."""
COLUMNS: Mapping[str, str] = {"eager": "eager", "default": "default", REPLAYED: "graph"}
"""Begin the names of what was measured and predicted in each mode."""
EAGER_ALONE = "eager"
"""What rounds of eager calls are called that were measured beside no mode."""
PROBES = "probes_us"
"""What the host was found to be before each round of a record and after its last, where a process probed it itself."""
HOST_TIMES: Mapping[str, str] = {mode: f"{mode}_host_us" for mode in ("eager", *WALLS)}
"""What the time is called that the host takes for a call in each mode."""


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A whole-model case as it was measured: what it is, and medians in microseconds by name.

    `host_speed` is how fast the host was around then, against `usual_probe_us` of all cases; 1 where nobody probed it.
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
        """The family that is left out when this model is predicted."""
        return family_of(self.model)

    @property
    def key(self) -> tuple[object, ...]:
        """What was measured, wherever it was."""
        return self.model, self.batch_size, self.precision, self.layout, self.record.get("img_size")

    @property
    def environment(self) -> int:
        """Which of the file's environments, or machines, it was measured in."""
        return int(self.record.get("environment", 0))

    @property
    def session(self) -> object:
        """What was measured with it in one go, on one host; a machine's whole file where nobody noted it."""
        return self.environment, self.record.get("session")

    @property
    def probe_us(self) -> float | None:
        """What a launch took on the host then; None where nobody probed it."""
        return float(self.record["probe_us"]) if "probe_us" in self.record else None

    @property
    def fold(self) -> int:
        """The fold that its family is tested in."""
        return fold_of(self.family)
