"""Plans and validations as text, in every format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from costmodel.plan import Plan
from costmodel.report import check_format
from costmodel.report.rows import NONE, TOP_LAYERS, interval, milliseconds, number, times
from costmodel.report.sections import Section, Sheet, render_sheet
from costmodel.report.to_csv import csv_text
from costmodel.report.to_json import json_text

if TYPE_CHECKING:
    from costmodel.report.validation_types import LayerResult, Validation

_RESULT_COLUMNS = (
    *("mode", "predicted ms", "measured ms", "interval", "error", "speedup", "interval"),
    *("compile s", "peak MB", "output error", ""),
)
_LAYER_COLUMNS = ("layer", "kind", "predicted us", "measured us", "error")


def render_plan(plan: Plan, format: str = "table", width: int | None = None) -> str:  # noqa: A002
    """A plan: predicted latency against every mode, then its regions in order; CSV holds the regions.

    Raises:
        RequestError: unknown format.
    """
    regions = [{"region": index, **region} for index, region in enumerate(plan.to_dict()["regions"])]
    return _render(plan.to_dict(), regions, plan_sheet(plan), format, width)


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


def _render(
    values: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    sheet: Sheet,
    format: str,  # noqa: A002
    width: int | None,
) -> str:
    check_format(format)
    if format == "json":
        return json_text(values)
    if format == "csv":
        return csv_text(list(records[0]), map(_flat, records))
    return render_sheet(sheet, format, width)


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: " ".join(value) if isinstance(value, (list, tuple)) else value for key, value in record.items()}


def plan_sheet(plan: Plan) -> Sheet:
    """What a plan's reader is shown."""
    planned = plan.latency_ms["plan"]
    best = min((ms for mode, ms in plan.latency_ms.items() if mode != "plan"), default=planned)
    latencies = [(mode, milliseconds(ms), times(ms / planned)) for mode, ms in plan.latency_ms.items()]
    regions = [
        (
            str(index),
            region.span or NONE,
            str(len(region.ops)),
            region.backend,
            str(region.lane),
            number(region.us, 1),
            region.why,
        )
        for index, region in enumerate(plan.regions)
    ]
    moves = ", ".join(map(_move, plan.moves)) or "none"
    side = f" of {plan.lanes} lanes side by side" if plan.lanes > 1 else ""
    search = "; cuDNN's algorithms are searched" if plan.search else ""
    needs = "" if plan.memory_bytes is None else f"; a call needs about {plan.memory_bytes / 2**20:.0f} MiB"
    launch = f"launched as one {plan.launch}{side}{search}"
    notes = [f"moves: {moves}; {launch}; compiling takes about {plan.build_s:.0f} s{needs}"]
    faults = "".join(f"{text}; " for text in plan.warnings)
    gain = f"{times(best / planned)} the speed of the best mode, predicted"
    title = f"plan for {plan.model} on {plan.hardware}: {faults}{gain}"
    columns = ("region", "layer", "count", "backend", "lane", "us", "why")
    return Sheet(
        title, (("latency", ("mode", "latency ms", "of plan"), latencies), ("regions", columns, regions)), notes
    )


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


def _move(text: str) -> str:
    """A move, and at how many places it is made, if not at all of them."""
    name, _, places = text.partition(":")
    return f"{name} at {places.count(',') + 1}" if places else name
