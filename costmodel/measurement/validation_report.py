"""What `costmodel validate` says: frozen records whose fields are the keys of its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from costmodel.report.types import SCHEMA, plain


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One way of running the model.

    Attributes:
        predicted_ms: latency as predicted; None where nothing predicts it.
        measured_ms: median of the rounds' medians, with the 95 % interval of a bootstrap over rounds.
        speedup: eager over this one, round by round; its median and 95 % interval.
        compile_s: what the first call took, Inductor's cache on disk as it was.
        peak_mb: most memory that torch had allocated during a call; None on a CPU.
        output_error: largest relative error of an output against eager's.
        note: why it was not measured, or what is odd about it.
    """

    predicted_ms: float | None
    measured_ms: float | None
    low_ms: float | None = None
    high_ms: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    compile_s: float | None = None
    peak_mb: float | None = None
    output_error: float | None = None
    note: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured latency, minus one."""
        if self.predicted_ms is None or not self.measured_ms:
            return None
        return self.predicted_ms / self.measured_ms - 1


@dataclass(frozen=True, slots=True)
class LayerResult:
    """One layer of a report, eager or compiled, or one region of a plan, predicted beside measured.

    Attributes:
        name: the module's, as in the report; of a region the first and the last one's.
        kind: of the layer's main operator; of a region its backend.
        predicted_us: time on the device; None where nothing predicts it.
        measured_us: the same, of a layer inside the running model, on a CPU with what PyTorch takes to call its
            operators, of a region alone. None where a pass called other operators than were captured, or where the
            region cannot be measured.
    """

    name: str
    kind: str
    predicted_us: float | None
    measured_us: float | None

    @property
    def error(self) -> float | None:
        """Predicted over measured time, minus one."""
        return self.predicted_us / self.measured_us - 1 if self.predicted_us and self.measured_us else None


@dataclass(frozen=True, slots=True)
class Validation:
    """Predicted beside measured, for one model.

    Attributes:
        modes: and plans, by name.
        replaced: layers of the plan's regions that computed something else, and so run eagerly.
        host_speed: of the machine, against the profile's own.
        layers: eager ones, inside the running model; none unless they were asked for, as those that follow.
        compiled_layers: those of the default mode.
        regions: of the plan, each alone.
    """

    model: str
    hardware: str
    device: str
    input_shape: tuple[int, ...]
    precision: str
    modes: Mapping[str, ModeResult]
    replaced: tuple[str, ...] = ()
    host_speed: float = 1.0
    layers: tuple[LayerResult, ...] = ()
    compiled_layers: tuple[LayerResult, ...] = ()
    regions: tuple[LayerResult, ...] = ()

    @property
    def worst_error(self) -> float:
        """The largest error of a predicted speedup; 0 where none was both predicted and measured."""
        eager = self.modes["eager"]
        errors = [
            abs(eager.predicted_ms / mode.predicted_ms / mode.speedup - 1)
            for mode in self.modes.values()
            if eager.predicted_ms and mode.predicted_ms and mode.speedup
        ]
        return max(errors, default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON's types."""
        found: dict[str, Any] = plain({"schema": SCHEMA, **asdict(self), "worst_error": self.worst_error})
        return found
