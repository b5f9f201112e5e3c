"""What `costmodel validate` says: frozen records whose fields are the keys of its JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from costmodel.report.rows import NONE, TOP_LAYERS, interval, milliseconds, number, times
from costmodel.report.sections import Section, Sheet, _render
from costmodel.report.types import SCHEMA, plain

_RESULT_COLUMNS = (
    *("mode", "predicted ms", "measured ms", "interval", "error", "speedup", "interval"),
    *("compile s", "peak MB", "output error", ""),
)
_LAYER_COLUMNS = ("layer", "kind", "predicted us", "measured us", "error")


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


def render_validation(
    result: Validation,
    format: str = "table",  # noqa: A002
    width: int | None = None,
    layers: str = "all",
) -> str:
    """A validation: predicted beside measured, mode by mode, and layer by layer where they were measured.

    Args:
        result: what is shown.
        format: one of FORMATS; CSV holds the modes.
        width: columns of the terminal, for `table`; None for no limit.
        layers: `all` that were measured, or `top`, those that take most.

    Raises:
        RequestError: unknown format.
    """
    values = result.to_dict()
    modes = [{"model": result.model, "mode": name, **found} for name, found in values["modes"].items()]
    return _render(values, modes, validation_sheet(result, layers), format, width)


def validation_sheet(result: Validation, layers: str = "all") -> Sheet:
    """What a validation's reader is shown."""
    cells = [
        (
            mode,
            milliseconds(found.predicted_ms),
            milliseconds(found.measured_ms),
            interval(milliseconds(found.low_ms), milliseconds(found.high_ms)),
            _percent(found.error),
            times(found.speedup),
            interval(number(found.speedup_low), number(found.speedup_high)),
            number(found.compile_s, 1),
            number(found.peak_mb, 0),
            NONE if found.output_error is None else f"{found.output_error:.1e}",
            found.note,
        )
        for mode, found in result.modes.items()
    ]
    shape = "x".join(map(str, result.input_shape))
    title = f"{result.model} on {result.device}, predicted for {result.hardware}: input {shape}, {result.precision}"
    notes = [f"largest error of a predicted speedup: {result.worst_error:.1%}", *_wrong(result.replaced)]
    if result.host_speed != 1.0:
        notes.append(f"this host issues kernels at {result.host_speed:.2f} of the speed of the profile's own")
    sections: list[Section] = [("predicted and measured", _RESULT_COLUMNS, cells)]
    for name, found in (
        ("regions of the plan, alone", result.regions),
        ("eager layers", result.layers),
        ("compiled layers", result.compiled_layers),
    ):
        shown = _longest(found, TOP_LAYERS if layers == "top" else len(found))
        most = f": the {len(shown)} of {len(found)} that take most" if len(shown) < len(found) else ""
        if found:
            sections.append((name + most, _LAYER_COLUMNS, [_layer_row(layer) for layer in shown]))
    return Sheet(title, sections, notes)


def _longest(layers: Sequence[LayerResult], most: int) -> list[LayerResult]:
    """Those that take most, in execution order."""
    order = sorted(
        range(len(layers)), key=lambda index: -(layers[index].measured_us or layers[index].predicted_us or 0.0)
    )
    return [layers[index] for index in sorted(order[:most])]


def _layer_row(layer: LayerResult) -> tuple[str, ...]:
    return (
        layer.name,
        layer.kind,
        number(layer.predicted_us, 1),
        number(layer.measured_us, 1),
        _percent(layer.error),
    )


def _wrong(names: Iterable[str]) -> list[str]:
    return [f"computed something else, so run eagerly: {name}" for name in names]


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{share:+.1%}"
