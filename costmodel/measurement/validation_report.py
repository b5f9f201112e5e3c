"""Validations as frozen records, whose fields are the keys of the JSON of `costmodel validate`, and as documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from costmodel.report.document import Column, Document, Records, Row, Section, figures
from costmodel.report.figures import (
    mebibytes,
    milliseconds,
    percent,
    ratio_interval,
    scientific,
    tenths,
    time_interval,
    times,
)
from costmodel.report.prediction_document import TOP_LAYERS
from costmodel.report.renderers import render_document
from costmodel.report.types import EAGER, SCHEMA, plain

_MODE_COLUMNS = (
    Column("mode", keeps_width=True),
    figures("predicted ms", milliseconds),
    figures("measured ms", milliseconds),
    figures("95 % interval", time_interval),
    figures("error", percent),
    figures("speedup", times),
    figures("95 % interval", ratio_interval),
    figures("compile s", tenths),
    figures("peak MiB", mebibytes),
    figures("output error", scientific),
    Column(""),
)
_LAYER_COLUMNS = (
    Column("layer", keeps_width=True),
    Column("kind"),
    figures("predicted us", tenths),
    figures("measured us", tenths),
    figures("error", percent),
)


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode or plan, predicted and measured.

    Attributes:
        predicted_ms: predicted latency; None where there is no prediction.
        measured_ms: median over rounds of each round's median latency; None where it was not measured.
        low_ms, high_ms: 95 % bootstrap interval of the measured latency, over rounds.
        speedup: eager latency over this latency, round by round: the median.
        speedup_low, speedup_high: 95 % bootstrap interval of the speedup.
        compile_s: duration of the first call, with Inductor's disk cache as it was.
        peak_bytes: peak of the memory that torch allocated during a call; None on a CPU.
        output_error: largest relative error of an output against eager's.
        note: reason why the mode was not measured, or a remark.
    """

    predicted_ms: float | None
    measured_ms: float | None
    low_ms: float | None = None
    high_ms: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    compile_s: float | None = None
    peak_bytes: int | None = None
    output_error: float | None = None
    note: str = ""

    @property
    def error(self) -> float | None:
        """Relative error of the predicted latency."""
        if self.predicted_ms is None or not self.measured_ms:
            return None
        return self.predicted_ms / self.measured_ms - 1


@dataclass(frozen=True, slots=True)
class LayerResult:
    """One layer of a prediction, eager or compiled, or one region of a plan, predicted and measured.

    Attributes:
        name: name of the layer's module; of a region the first and the last module.
        kind: kind of the layer's anchor operator; of a region the backend.
        predicted_us: predicted device time; None where there is no prediction.
        measured_us: device time: of a layer inside the running model, of a region alone; on a CPU it includes calling
            the layer's operators. None where a pass called other operators than were captured, or where the region
            cannot be measured.
    """

    name: str
    kind: str
    predicted_us: float | None
    measured_us: float | None

    @property
    def error(self) -> float | None:
        """Relative error of the predicted time."""
        return self.predicted_us / self.measured_us - 1 if self.predicted_us and self.measured_us else None


@dataclass(frozen=True, slots=True)
class Validation:
    """Predicted and measured latency of one model.

    Attributes:
        modes: results of modes and of the plan, by name.
        replaced: layers of the plan's regions whose outputs differed, so that they run eagerly.
        host_speed: speed of this machine's host relative to the profile's.
        layers: eager layers inside the running model; empty unless layers were asked for.
        compiled_layers: layers of the mode `default`; empty unless layers were asked for.
        regions: the plan's regions, each alone; empty unless layers were asked for.
        arithmetic: settings of torch that are not its defaults, as in a report of `costmodel predict`; empty and absent
            from JSON if there are none.
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
    arithmetic: str = ""

    @property
    def worst_error(self) -> float:
        """Largest relative error of a predicted speedup; 0 if none was both predicted and measured."""
        eager = self.modes[EAGER]
        errors = [
            abs(eager.predicted_ms / mode.predicted_ms / mode.speedup - 1)
            for mode in self.modes.values()
            if eager.predicted_ms and mode.predicted_ms and mode.speedup
        ]
        return max(errors, default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The validation in JSON's types."""
        found: dict[str, Any] = plain({"schema": SCHEMA, **asdict(self), "worst_error": self.worst_error})
        return {key: value for key, value in found.items() if key != "arithmetic" or value}


def render_validation(
    result: Validation,
    format: str = "table",  # noqa: A002 - the name of the option
    width: int | None = None,
    layers: str = "all",
    *,
    color: bool = False,
) -> str:
    """Render a validation as text that ends in a newline.

    Args:
        result: the validation.
        format: one of FORMATS; CSV holds the modes.
        width: columns of the terminal, for `table`; None for no limit.
        layers: `all` measured layers, or `top`: those that take longest.
        color: whether `table` may use terminal colours.

    Raises:
        RequestError: unknown format.
    """
    return render_document(validation_document(result, layers), format, width, color=color)


def validation_document(result: Validation, layers: str = "all") -> Document:
    """The document of a validation: modes, then the layers that were measured."""
    shape = "x".join(map(str, result.input_shape))
    precision = ", ".join(filter(None, (result.precision, result.arithmetic)))
    title = f"{result.model} on {result.device}, predicted for {result.hardware}: input {shape}, {precision}"
    worst = f"largest error of a predicted speedup: {result.worst_error:.1%}"
    modes = Section("predicted and measured", _MODE_COLUMNS, [_mode_row(*item) for item in result.modes.items()], worst)
    measured = (
        ("regions of the plan, measured alone", result.regions),
        ("eager layers", result.layers),
        ("compiled layers", result.compiled_layers),
    )
    sections = [modes, *(_layer_section(title, found, layers) for title, found in measured if found)]
    return Document(result.model, title, sections, result.to_dict(), _records(result), _notes(result))


def _mode_row(mode: str, found: ModeResult) -> Row:
    return (
        mode,
        found.predicted_ms,
        found.measured_ms,
        (found.low_ms, found.high_ms),
        found.error,
        found.speedup,
        (found.speedup_low, found.speedup_high),
        found.compile_s,
        found.peak_bytes,
        found.output_error,
        found.note,
    )


def _layer_section(title: str, layers: Sequence[LayerResult], choice: str) -> Section:
    shown = _longest(layers, TOP_LAYERS) if choice == "top" else layers
    most = f": the {len(shown)} of {len(layers)} that take longest" if len(shown) < len(layers) else ""
    rows = [(layer.name, layer.kind, layer.predicted_us, layer.measured_us, layer.error) for layer in shown]
    return Section(title + most, _LAYER_COLUMNS, rows)


def _longest(layers: Sequence[LayerResult], most: int) -> Sequence[LayerResult]:
    """The `most` layers that take longest, in execution order."""
    durations = [layer.measured_us or layer.predicted_us or 0.0 for layer in layers]
    order = sorted(range(len(layers)), key=lambda index: -durations[index])
    return [layers[index] for index in sorted(order[:most])]


def _notes(result: Validation) -> list[str]:
    notes = [f"runs eagerly, because its output differs from eager execution: {name}" for name in result.replaced]
    if result.host_speed != 1.0:
        notes.append(f"host calibrated by a probe: {times(result.host_speed)} the speed of the profile's host")
    return notes


def _records(result: Validation) -> Records:
    """Rows of the CSV: the modes."""
    about = {"model": result.model, "arithmetic": result.arithmetic}
    rows = [{**about, "mode": name, **asdict(found)} for name, found in result.modes.items()]
    return Records(["model", "mode", *(field.name for field in fields(ModeResult)), "arithmetic"], rows)
