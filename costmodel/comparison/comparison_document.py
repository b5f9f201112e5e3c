"""Comparisons as documents: modes and layers of each case, before and after."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from costmodel.comparison.change import FASTER, SAME, SLOWER, Change
from costmodel.comparison.compare import CaseChange, Comparison, LayerChange, counts, name_of
from costmodel.report.document import Column, Document, Records, Row, Section, Tone, figures
from costmodel.report.figures import counted, milliseconds, percent, tenths, times
from costmodel.report.prediction_document import LAYERS_BY_FORMAT, TOP_LAYERS
from costmodel.report.renderers import render_documents
from costmodel.report.types import plain

SCHEMA = 1
"""Version of the JSON."""

ABOUT = ("model", "hardware", "batch_size", "precision", "arithmetic")
_TONES = {FASTER: Tone.GOOD, SLOWER: Tone.DOUBTFUL}
_CHANGES = [field.name for field in dataclasses.fields(Change)]


def _change_interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f"{bounds[0] - 1.0:+.1%} to {bounds[1] - 1.0:+.1%}"


def _relative(ratio: float | None) -> str:
    return percent(None if ratio is None else ratio - 1.0)


MODE_COLUMNS = (
    Column("mode", keeps_width=True),
    figures("before ms", milliseconds),
    figures("after ms", milliseconds),
    figures("change", _relative),
    figures("90 % interval", _change_interval),
    Column("latency is"),
    figures("speedup before", times, is_detail=True),
    figures("speedup after", times, is_detail=True),
    Column("speedup is", is_detail=True),
)
LAYER_COLUMNS = (
    Column("layer", keeps_width=True),
    Column("kind", is_detail=True),
    figures("before us", tenths),
    figures("after us", tenths),
    figures("change", _relative),
    figures("90 % interval", _change_interval),
    Column("compiled is"),
)


def comparison_documents(comparison: Comparison, layers: str, regressions: Sequence[str] = ()) -> list[Document]:
    """A document for each case; the last one names cases without a counterpart.

    Args:
        comparison: the comparison; it has at least one case.
        layers: `top` (the layers whose time changes most), `all` or `none`. CSV holds the modes, or with `all` or `top`
            the layers in their place.
        regressions: regressions that the user asked about, a line each, for JSON.
    """
    values = comparison_values(comparison, regressions)
    documents = [_case_document(case, layers, values) for case in comparison.cases]
    last = documents[-1]
    return [*documents[:-1], dataclasses.replace(last, notes=[*last.notes, *_notes(comparison)])]


def render_comparison(
    comparison: Comparison,
    format: str,  # noqa: A002 - the name of the command's option
    layers: str | None = None,
    *,
    regressions: Sequence[str] = (),
    width: int | None = None,
    color: bool = False,
) -> str:
    """Render a comparison as text that ends in a newline; `layers` is None for the format's own choice."""
    chosen = LAYERS_BY_FORMAT[format] if layers is None else layers
    documents = comparison_documents(comparison, chosen, regressions)
    if format == "json":
        documents = documents[:1]  # each holds the whole comparison
    return render_documents(documents, format, width, color=color)


def comparison_values(comparison: Comparison, regressions: Sequence[str]) -> dict[str, Any]:
    """The comparison in JSON's types."""
    cases = [_case_values(case) for case in comparison.cases]
    rest = {"only_before": list(comparison.only_before), "only_after": list(comparison.only_after)}
    return {"schema": SCHEMA, "cases": cases, **rest, "regressions": list(regressions)}


def _case_document(case: CaseChange, layers: str, values: dict[str, Any]) -> Document:
    conclusion, tone = _conclusion(case)
    sections = [Section("", MODE_COLUMNS, _mode_rows(case), conclusion, tone)]
    shown = _shown_layers(case, layers)
    if shown:
        sections.append(Section(_layers_title(case, shown), LAYER_COLUMNS, [_layer_row(layer) for layer in shown]))
    records = _mode_records(case) if layers == "none" else _layer_records(case, shown)
    return Document(case.before.model, _headline(case), sections, values, records, _case_notes(case))


def _headline(case: CaseChange) -> str:
    before, after = name_of(case.before), name_of(case.after)
    return before if before == after else f"{before} -> {after}"


def _conclusion(case: CaseChange) -> tuple[str, Tone]:
    """Change of the fastest mode, and the layers by verdict."""
    best = case.best
    modes = case.best_before if case.best_before == case.best_after else f"{case.best_before} -> {case.best_after}"
    interval = _change_interval((best.ratio_low, best.ratio_high))
    change = f"{milliseconds(best.before)} ms -> {milliseconds(best.after)} ms, {_relative(best.ratio)} ({interval})"
    layers = ", ".join(f"{count} {verdict}" for verdict, count in counts(case.layers).items())
    end = f"; layers: {layers}" if layers else ""
    return f"{best.verdict} in the fastest mode, {modes}: {change}{end}", _TONES.get(best.verdict, Tone.PLAIN)


def _mode_rows(case: CaseChange) -> list[Row]:
    rows: list[Row] = []
    for mode in case.modes:
        speedup = mode.speedup
        gains = (None, None, "") if speedup is None else (speedup.before, speedup.after, speedup.verdict)
        rows.append((mode.mode, *_change_cells(mode.latency), mode.latency.verdict, *gains))
    return rows


def _change_cells(change: Change | None) -> tuple[Any, ...]:
    if change is None:
        return (None, None, None, None)
    return (change.before, change.after, change.ratio, (change.ratio_low, change.ratio_high))


def _layer_row(layer: LayerChange) -> Row:
    return (layer.name, layer.kind, *_change_cells(layer.decisive), layer.verdict)


def _shown_layers(case: CaseChange, layers: str) -> list[LayerChange]:
    """Layers in execution order: all, none, or for `top` those that change, at most TOP_LAYERS."""
    if layers == "all":
        return list(case.layers)
    changed = [layer for layer in case.layers if layer.verdict != SAME] if layers == "top" else []
    most = set(map(id, sorted(changed, key=lambda layer: -_moved_us(layer))[:TOP_LAYERS]))
    return [layer for layer in changed if id(layer) in most]


def _moved_us(layer: LayerChange) -> float:
    return 0.0 if layer.decisive is None else abs(layer.decisive.after - layer.decisive.before)


def _layers_title(case: CaseChange, shown: Sequence[LayerChange]) -> str:
    if len(shown) == len(case.layers):
        return f"layers ({len(shown)})"
    return f"layers that change most: {len(shown)} of {len(case.layers)} (--layers all shows every one)"


def _case_notes(case: CaseChange) -> list[str]:
    lines = []
    for side, modes, names in (
        ("first", case.modes_only_before, case.layers_only_before),
        ("second", case.modes_only_after, case.layers_only_after),
    ):
        lines += [f"only the {side} report predicts {mode}" for mode in modes]
        if names:
            listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            lines.append(f"only the {side} report has {counted(len(names), 'layer')}: {listed}")
    return lines


def _notes(comparison: Comparison) -> Iterator[str]:
    for side, names in (("first", comparison.only_before), ("second", comparison.only_after)):
        yield from (f"only in the {side} file: {name}" for name in names)


def _about(case: CaseChange) -> dict[str, Any]:
    return {name: getattr(case.before, name) for name in ABOUT}


def _case_values(case: CaseChange) -> dict[str, Any]:
    values = dataclasses.asdict(dataclasses.replace(case, before=None, after=None))  # type: ignore[arg-type]
    layers = [{**layer, "verdict": change.verdict} for layer, change in zip(values["layers"], case.layers, strict=True)]
    names = {side: {name: getattr(getattr(case, side), name) for name in ABOUT} for side in ("before", "after")}
    found: dict[str, Any] = plain({**values, **names, "layers": layers})
    return found


def _mode_records(case: CaseChange) -> Records:
    columns = [*ABOUT, "mode", *(f"latency_{name}" for name in _CHANGES), *(f"speedup_{name}" for name in _CHANGES)]
    rows = []
    for mode in case.modes:
        row = {**_about(case), "mode": mode.mode, **_prefixed("latency", mode.latency)}
        rows.append(row | ({} if mode.speedup is None else _prefixed("speedup", mode.speedup)))
    return Records(columns, rows)


def _layer_records(case: CaseChange, shown: Sequence[LayerChange]) -> Records:
    changes = [f"{way}_{name}" for way in ("eager", "compiled") for name in _CHANGES]
    columns = [*ABOUT, "layer", "kind", *changes, "verdict"]
    rows = []
    for layer in shown:
        row = {**_about(case), "layer": layer.name, "kind": layer.kind, "verdict": layer.verdict}
        for way, change in (("eager", layer.eager), ("compiled", layer.compiled)):
            row |= {} if change is None else _prefixed(way, change)
        rows.append(row)
    return Records(columns, rows)


def _prefixed(prefix: str, change: Change) -> dict[str, Any]:
    return {f"{prefix}_{name}": getattr(change, name) for name in _CHANGES}
