"""Predictions as documents: the modes with a verdict, the layers, the reasons, the warnings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from costmodel.report.document import Column, Document, Records, Row, Section, Tone, figures
from costmodel.report.figures import (
    NEVER,
    Interval,
    calls,
    calls_interval,
    counted,
    milliseconds,
    ratio_interval,
    seconds,
    seconds_interval,
    tenths,
    time_interval,
    times,
)
from costmodel.report.types import EAGER, LayerPrediction, ModePrediction, Report

TOP_LAYERS = 15
"""Number of layers that `top` shows: those whose time changes most."""

LAYERS_BY_FORMAT = {"table": "top", "json": "none", "csv": "none", "md": "top", "html": "all"}
"""Layers that each format shows unless others are asked for."""

MODE_COLUMNS = (
    Column("mode", keeps_width=True),
    figures("latency ms", milliseconds, has_bar=True),
    figures("90 % interval", time_interval),
    figures("speedup", times),
    figures("90 % interval", ratio_interval),
    figures("host ms", milliseconds, is_detail=True),
    figures("device ms", milliseconds, is_detail=True),
    figures("compile s", seconds),
    figures("90 % interval", seconds_interval, is_detail=True),
    figures("warm s", seconds, is_detail=True),
    figures("break-even after", calls),
    figures("90 % interval", calls_interval, is_detail=True),
)
LAYER_COLUMNS = (
    Column("layer", keeps_width=True),
    Column("operators", is_detail=True),
    figures("eager us", tenths),
    figures("compiled us", tenths),
    figures("speedup", times),
    figures("90 % interval", ratio_interval),
    Column("backend"),
    Column(""),
)
REASON_COLUMNS = (Column("about"), Column("where"), Column("why"))
EXTRAPOLATED = "extrapolated"
NOTABLE_SHARE = 0.1
"""Share of extrapolated time from which it is named as a reason for doubt."""

_ABOUT = ("model", "hardware", "batch_size", "input_shape", "precision", "layout")
_CONCLUSION = ("verdict", "best_mode", "extrapolated_share", "too_large", "arithmetic")
"""Facts of the whole model in each row of CSV; a layer's row has its own `extrapolated_share`."""
_TONES = {"compile": Tone.GOOD, "leave": Tone.PLAIN}


def prediction_document(report: Report, layers: str) -> Document:
    """The document of a prediction.

    Args:
        report: the prediction.
        layers: `top`, `all` or `none`. CSV holds the modes, or with `top` or `all` the layers in their place.
    """
    tone = _TONES.get(report.verdict, Tone.DOUBTFUL)
    sections = [Section("", MODE_COLUMNS, _mode_rows(report), verdict(report), tone)]
    if rows := layer_rows(report, layers):
        sections.append(Section(layers_title(report, layers), LAYER_COLUMNS, rows))
    if report.explanation:
        reasons = [(item.topic, item.where, item.why) for item in report.explanation]
        sections.append(Section("reasons", REASON_COLUMNS, reasons))
    records = _mode_records(report) if layers == "none" else _layer_records(report, layers)
    return Document(report.model, headline(report), sections, report.to_dict(), records, notes(report))


def verdict(report: Report) -> str:
    """One sentence: whether to compile, in which mode, and what it gains."""
    best = report.modes.get(report.best_mode)
    if report.verdict == "compile" and best is not None and report.best_mode != EAGER:
        return f"compile: {report.best_mode} is fastest, {_gain(best)}"
    if report.graphs.error:
        return f"leave: torch.compile fails on this model: {report.graphs.error}"
    if report.graphs.count == 0:
        return "leave: torch.compile gives up every frame of this model, so it runs eagerly in every mode"
    if report.verdict == "leave":
        return "leave: no mode of torch.compile is predicted to be faster than eager execution"
    if report.verdict != "uncertain":
        return report.verdict
    likelier = f", more likely {report.leaning}" if report.leaning else ""
    return f"uncertain{likelier}: {_doubt(report, best)}"


def _doubt(report: Report, best: ModePrediction | None) -> str:
    """Why a verdict is uncertain."""
    if report.too_large:
        return f"the model {report.too_large}; every figure assumes that it fits"
    if report.partial:
        return "only a part of the model was captured, and every figure is of that part; the warnings name the rest"
    why = "the 90 % prediction interval of the speedup contains 1"
    if report.extrapolated_share >= NOTABLE_SHARE:
        why += f", and {report.extrapolated_share:.0%} of the device time is extrapolated"
    gain = f", {_gain(best)}" if best and best.speedup else ""
    return f"{why}; best guess {report.best_mode}{gain}"


def shown_layers(report: Report, layers: str) -> tuple[LayerPrediction, ...]:
    """Layers in execution order: all, none, or for `top` those whose time changes most."""
    if layers == "none":
        return ()
    if layers == "all" or len(report.layers) <= TOP_LAYERS:
        return report.layers
    order = sorted(range(len(report.layers)), key=lambda index: -abs(_saved_us(report.layers[index])))
    return tuple(report.layers[index] for index in sorted(order[:TOP_LAYERS]))


def layer_rows(report: Report, layers: str) -> list[Row]:
    """Rows of the shown layers; one last row sums the others."""
    shown = shown_layers(report, layers)
    rows = [_layer_row(layer) for layer in shown]
    if shown and len(shown) < len(report.layers):
        known = {id(layer) for layer in shown}
        rows.append(_rest_row([layer for layer in report.layers if id(layer) not in known]))
    return rows


def headline(report: Report) -> str:
    """Model, hardware, host and input, with its layout if it has one: images and volumes."""
    shape = "x".join(map(str, report.input_shape))
    part = " (captured in part)" if report.partial else ""
    fault = f" {report.too_large}" if report.too_large else ""
    model = f"{report.model}{part} on {report.hardware}{_host(report)}{fault}"
    layout = f" {report.layout}," if len(report.input_shape) >= 4 else ""
    return f"{model}: input {shape}, {report.computes_in},{layout} {report.graphs.summary}"


def _host(report: Report) -> str:
    """The host that launches the kernels, and whether its speed is known."""
    if report.host_calibrated is None:
        return ""
    if not report.host_calibrated:
        return ", host uncalibrated"
    return f", host {report.host} (calibrated, {times(report.host_speed)} the speed of the profile's)"


def _mode_rows(report: Report) -> list[Row]:
    return [_mode_row(name, mode) for name, mode in report.modes.items()]


def _mode_row(name: str, mode: ModePrediction) -> Row:
    return (
        name,
        mode.latency_ms,
        (mode.low_ms, mode.high_ms),
        mode.speedup,
        (mode.speedup_low, mode.speedup_high),
        mode.host_ms,
        mode.device_ms,
        mode.compile_s,
        (mode.compile_s_low, mode.compile_s_high),
        mode.compile_warm_s,
        *break_even(mode),
    )


def break_even(mode: ModePrediction) -> tuple[float | None, Interval]:
    """Calls to break-even and their interval, with NEVER where a compilation does not pay off."""
    if mode.compile_s is None:
        return None, (None, None)
    found = (mode.break_even_calls, mode.break_even_low, mode.break_even_high)
    middle, low, high = (NEVER if value is None else value for value in found)
    return middle, (None, None) if mode.compile_s_low is None else (low, high)


def _gain(mode: ModePrediction) -> str:
    bounds = ratio_interval((mode.speedup_low, mode.speedup_high))
    gain = f"{times(mode.speedup)} the speed of eager" + (f" (90 % interval {bounds})" if bounds else "")
    if mode.break_even_calls is None:
        return gain
    between = calls_interval(break_even(mode)[1])
    between = f" ({between})" if between else ""
    return f"{gain}; break-even after {counted(mode.break_even_calls, 'call')}{between}"


def layers_title(report: Report, layers: str) -> str:
    """Heading of the list of layers."""
    shown, count = len(shown_layers(report, layers)), len(report.layers)
    if shown == count:
        return f"layers ({count})"
    return f"layers: the {shown} of {count} whose time changes most (--layers all shows every one)"


def _layer_row(layer: LayerPrediction) -> Row:
    return (
        layer.name,
        " ".join(layer.ops) or layer.kind,
        layer.eager_us,
        layer.compiled_us,
        layer.speedup,
        (layer.speedup_low, layer.speedup_high),
        layer.backend,
        "" if layer.in_range else EXTRAPOLATED,
    )


def _rest_row(rest: Sequence[LayerPrediction]) -> Row:
    eager = _total(layer.eager_us for layer in rest)
    compiled = _total(layer.compiled_us for layer in rest)
    speedup = eager / compiled if compiled else None
    name = "the other layer" if len(rest) == 1 else f"the other {len(rest)} layers"
    extrapolated = sum(not layer.in_range for layer in rest)
    flag = f"{extrapolated} {EXTRAPOLATED}" if extrapolated else ""
    return (name, "", eager, compiled, speedup, (None, None), "", flag)


def _total(values: Iterable[float | None]) -> float:
    return sum(value for value in values if value is not None and math.isfinite(value))


def _saved_us(layer: LayerPrediction) -> float:
    if layer.eager_us is None or layer.compiled_us is None:
        return 0.0
    saved = layer.eager_us - layer.compiled_us
    return saved if math.isfinite(saved) else 0.0


def notes(report: Report) -> list[str]:
    """Graph breaks, unsupported operators by name and place, layers out of distribution, then the report's warnings."""
    lines = [f"graph break at {item.where}: {item.reason}" for item in report.graphs.breaks]
    lines += [f"unsupported operator {item.op} in {item.where or report.model}" for item in report.unsupported]
    if report.assumed_host:
        lines.append(f"host: {report.assumed_host}; --host calibrates")
    if outside := sum(not layer.in_range for layer in report.layers):
        verb = "has" if outside == 1 else "have"
        lines.append(f"{outside} of {counted(len(report.layers), 'layer')} {verb} {EXTRAPOLATED} kernels")
    return lines + [f"warning: {text}" for text in report.warnings]


def _about(report: Report) -> dict[str, Any]:
    values = {name: getattr(report, name) for name in _ABOUT}
    return values | {"input_shape": "x".join(map(str, report.input_shape))}


def _mode_records(report: Report) -> Records:
    fields = [field.name for field in dataclasses.fields(ModePrediction)]
    rows = ({"mode": name, **values} for name, values in report.to_dict()["modes"].items())
    return _records(report, ["mode", *fields], rows)


def _layer_records(report: Report, layers: str) -> Records:
    fields = [field.name for field in dataclasses.fields(LayerPrediction)]
    shown = dataclasses.replace(report, layers=shown_layers(report, layers))
    return _records(report, fields, iter(shown.to_dict()["layers"]))


def _records(report: Report, columns: Sequence[str], rows: Iterator[Mapping[str, Any]]) -> Records:
    about, conclusion = _about(report), {name: getattr(report, name) for name in _CONCLUSION}
    names = dict.fromkeys([*_ABOUT, *columns, *_CONCLUSION])
    return Records(list(names), [{**about, **conclusion, **row} for row in rows])
