"""The words of a report: headings, cells and sentences that the table, Markdown and HTML formats share."""

from __future__ import annotations

import math
from collections.abc import Iterable

from costmodel.report.types import EAGER, LayerPrediction, ModePrediction, Report

TOP_LAYERS = 15
"""How many layers `top` shows: those whose time changes most."""

MODE_COLUMNS = (
    "mode",
    "latency ms",
    "interval",
    "speedup",
    "interval",
    "host ms",
    "device ms",
    "compile s",
    "pays after",
)
LAYER_COLUMNS = ("layer", "operators", "eager us", "compiled us", "speedup", "interval", "backend", "")
EXTRAPOLATED = "extrapolated"
NONE = "-"


def headline(report: Report) -> str:
    """What was predicted, on what, for which input."""
    shape = "x".join(map(str, report.input_shape))
    part = " (a part of it)" if report.partial else ""
    host = f", a host at {report.host_speed:.2f} of its speed" if report.host_speed != 1.0 else ""
    fault = f" {report.too_large}" if report.too_large else ""
    return f"{report.model}{part} on {report.hardware}{host}{fault}: input {shape}, {report.precision}, {report.layout}"


def mode_row(name: str, mode: ModePrediction) -> tuple[str, ...]:
    """The cells of one mode, under MODE_COLUMNS."""
    calls = None if mode.break_even_calls is None else f"{mode.break_even_calls:,} calls"
    return (
        name,
        milliseconds(mode.latency_ms),
        interval(milliseconds(mode.low_ms), milliseconds(mode.high_ms)),
        times(mode.speedup),
        interval(number(mode.speedup_low), number(mode.speedup_high)),
        milliseconds(mode.host_ms),
        milliseconds(mode.device_ms),
        number(mode.compile_s, 1),
        calls or ("never" if mode.compile_s is not None else NONE),
    )


def mode_rows(report: Report) -> list[tuple[str, ...]]:
    """The cells of every mode, in the report's order."""
    return [mode_row(name, mode) for name, mode in report.modes.items()]


def verdict(report: Report) -> str:
    """One sentence: whether to compile, in which mode, and what it brings."""
    best = report.modes.get(report.best_mode)
    if report.verdict == "compile" and best is not None and report.best_mode != EAGER:
        return f"compile: {report.best_mode} is fastest, {_gain(best)}"
    if report.verdict == "leave":
        return "leave: torch.compile is not predicted to make this model faster here"
    if report.too_large:
        return "uncertain: the model does not fit in the device's memory; every figure is of one that it would fit in"
    if report.partial:
        return "uncertain: every figure is of a part of the model only; the warnings say which is missing"
    if report.verdict == "uncertain":
        hint = f"; best guess {report.best_mode}" + (f", {_gain(best)}" if best and best.speedup else "")
        why = "parts of the model are unlike what was measured"
        if best is None or best.speedup_low is None or best.speedup_low <= 1.0:
            why = "the prediction does not separate compiled from eager"
        return f"uncertain: {why}{hint}"
    return report.verdict


def shown_layers(report: Report, layers: str) -> tuple[LayerPrediction, ...]:
    """The layers to show, in execution order: `all`, `none`, or for `top` those whose time changes most."""
    if layers == "none":
        return ()
    if layers == "all" or len(report.layers) <= TOP_LAYERS:
        return report.layers
    order = sorted(range(len(report.layers)), key=lambda index: -abs(_saved_us(report.layers[index])))
    return tuple(report.layers[index] for index in sorted(order[:TOP_LAYERS]))


def layer_row(layer: LayerPrediction) -> tuple[str, ...]:
    """The cells of one layer, under LAYER_COLUMNS."""
    return (
        layer.name,
        " ".join(layer.ops) or layer.kind,
        number(layer.eager_us, 1),
        number(layer.compiled_us, 1),
        times(layer.speedup),
        interval(number(layer.speedup_low), number(layer.speedup_high)),
        layer.backend,
        "" if layer.in_range else EXTRAPOLATED,
    )


def layer_rows(report: Report, layers: str) -> list[tuple[str, ...]]:
    """The cells of the layers to show; what is not shown is summed in one last row."""
    shown = shown_layers(report, layers)
    rows = [layer_row(layer) for layer in shown]
    if shown and len(shown) < len(report.layers):
        taken = {id(layer) for layer in shown}
        rows.append(_rest_row([layer for layer in report.layers if id(layer) not in taken]))
    return rows


def layers_title(report: Report, layers: str) -> str:
    """Heading of the layer table; says how many of how many are shown."""
    shown, count = len(shown_layers(report, layers)), len(report.layers)
    if shown == count:
        return f"layers ({count})"
    return f"layers: the {shown} of {count} whose time changes most (--layers all shows every one)"


REASON_COLUMNS = ("about", "where", "why")
REASONS_TITLE = "why"


def reason_rows(report: Report) -> list[tuple[str, str, str]]:
    """The reasons, if there are any."""
    return [(item.topic, item.where, item.why) for item in report.explanation]


def notes(report: Report) -> list[str]:
    """Unsupported operators by name and place, layers out of range, then the report's own warnings."""
    lines = [f"unsupported operator {item.op} in {item.where or report.model}" for item in report.unsupported]
    strange = sum(not layer.in_range for layer in report.layers)
    if strange:
        lines.append(f"{strange} of {len(report.layers)} layers are unlike what was measured: {EXTRAPOLATED}")
    return lines + [f"warning: {text}" for text in report.warnings]


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many decimals; `-` where there is none."""
    return NONE if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def milliseconds(value: float | None) -> str:
    """A time to about four figures: 0.123, 12.35, 123.5."""
    size = abs(value or 0.0)
    return number(value, 1 if size >= 100 else 2 if size >= 10 else 3)


def times(value: float | None) -> str:
    """A ratio as `1.50x`; `-` where there is none."""
    return NONE if value is None or not math.isfinite(value) else f"{value:,.2f}x"


def interval(low: str, high: str) -> str:
    """Two numbers in words as one interval, `6.300-7.100`; empty where one is missing."""
    return "" if NONE in (low, high) else f"{low}-{high}"


def _gain(mode: ModePrediction) -> str:
    bounds = interval(number(mode.speedup_low), number(mode.speedup_high))
    gain = f"{times(mode.speedup)} the speed of eager" + (f" ({bounds})" if bounds else "")
    if mode.break_even_calls is None:
        return gain
    return f"{gain}; compiling pays for itself after {mode.break_even_calls:,} calls"


def _saved_us(layer: LayerPrediction) -> float:
    if layer.eager_us is None or layer.compiled_us is None:
        return 0.0
    saved = layer.eager_us - layer.compiled_us
    return saved if math.isfinite(saved) else 0.0


def _rest_row(rest: list[LayerPrediction]) -> tuple[str, ...]:
    eager = _total(layer.eager_us for layer in rest)
    compiled = _total(layer.compiled_us for layer in rest)
    speedup = eager / compiled if compiled else None
    name = "the other layer" if len(rest) == 1 else f"the other {len(rest)} layers"
    strange = sum(not layer.in_range for layer in rest)
    flag = f"{strange} {EXTRAPOLATED}" if strange else ""
    return (name, "", number(eager, 1), number(compiled, 1), times(speedup), "", "", flag)


def _total(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None and math.isfinite(value))
