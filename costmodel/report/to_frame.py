"""Tables of a report as pandas frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from costmodel.report import KernelPrediction, LayerPrediction, ModePrediction, Report

if TYPE_CHECKING:
    import pandas as pd


def to_frame(report: Report, table: str) -> pd.DataFrame:
    """A table as a frame: a column a field, before them the mode where there are several."""
    import pandas as pd

    kind = {"layers": LayerPrediction, "modes": ModePrediction, "kernels": KernelPrediction}[table]
    columns = [field.name for field in dataclasses.fields(kind)]
    columns = columns if table == "layers" else ["mode", *columns]
    return pd.DataFrame(list(_rows(report, table)), columns=columns)


def _rows(report: Report, table: str) -> Iterator[dict[str, Any]]:
    if table == "layers":
        yield from map(_fields, report.layers)
    elif table == "modes":
        yield from ({"mode": name, **_fields(mode)} for name, mode in report.modes.items())
    else:
        for mode, kernels in report.kernels.items():
            yield from ({"mode": mode, **_fields(kernel)} for kernel in kernels)


def _fields(record: LayerPrediction | ModePrediction | KernelPrediction) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
