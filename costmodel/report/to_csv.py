"""Reports as CSV: a row a mode of each model, or on demand a row a layer."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from costmodel.report.escape import csv_cell
from costmodel.report.rows import shown_layers
from costmodel.report.types import LayerPrediction, ModePrediction, Report

_ABOUT = ("model", "hardware", "batch_size", "input_shape", "precision", "layout")


def to_csv(reports: Sequence[Report], layers: str) -> str:
    """One table with a heading; `layers` other than `none` asks for the layers in place of the modes."""
    mode_fields = [field.name for field in dataclasses.fields(ModePrediction)]
    layer_fields = [field.name for field in dataclasses.fields(LayerPrediction)]
    columns = ["mode", *mode_fields] if layers == "none" else layer_fields
    rows = (
        _about(report) | row
        for report in reports
        for row in (_modes(report) if layers == "none" else _layers(report, layers))
    )
    return csv_text([*_ABOUT, *columns], rows)


def csv_text(columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> str:
    """Records as CSV under a heading, each cell made safe for a spreadsheet; keys that are no column are left out."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for record in records:
        writer.writerow({key: csv_cell(value) for key, value in record.items()})
    return buffer.getvalue()


def _about(report: Report) -> dict[str, Any]:
    values = {name: getattr(report, name) for name in _ABOUT}
    return values | {"input_shape": "x".join(map(str, report.input_shape))}


def _modes(report: Report) -> Iterator[dict[str, Any]]:
    for name, values in report.to_dict()["modes"].items():
        yield {"mode": name} | values


def _layers(report: Report, layers: str) -> Iterator[dict[str, Any]]:
    shown = dataclasses.replace(report, layers=shown_layers(report, layers))
    for values in shown.to_dict()["layers"]:
        yield values | {"ops": " ".join(values["ops"])}
