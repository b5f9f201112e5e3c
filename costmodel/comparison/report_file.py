"""Reports from files that `costmodel predict --format json` wrote. Reading runs no code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costmodel.errors import RequestError
from costmodel.records import Format, one_line
from costmodel.report.types import SCHEMA, Report

MOST_REPORTS = 10_000
LEAST, LARGEST = 1e-9, 1e15
"""Bounds of times in any unit and of speedups, far enough apart for everything real; ratios of them stay finite."""

_FORMAT = Format(
    Report,
    "a report of `costmodel predict`",
    RequestError,
    "write one with `costmodel predict MODEL --format json -o FILE`",
    (SCHEMA,),
)


def read_reports(path: Path) -> tuple[Report, ...]:
    """Read the report of a file, or its list of reports.

    Raises:
        RequestError: the file cannot be read, or is no report of this schema; one line that says why.
    """
    data = _FORMAT.load(path)
    if not isinstance(data, list):
        return (_checked(data, str(path)),)
    if not 0 < len(data) <= MOST_REPORTS:
        raise RequestError(f"{path}: a list of {len(data):,} reports; give 1 to {MOST_REPORTS:,}")
    return tuple(_checked(item, f"{path}: report {number}") for number, item in enumerate(data, 1))


def _checked(data: object, where: str) -> Report:
    report = _FORMAT.check(data, where)
    if not report.modes:
        raise RequestError(f"{where}: a report without modes; write the report again")
    for name, mode in report.modes.items():
        _require(where, f"latency_ms of mode {name}", (mode.low_ms, mode.latency_ms, mode.high_ms))
        _require(where, f"speedup of mode {name}", (mode.speedup_low, mode.speedup, mode.speedup_high))
    for layer in report.layers:
        _require(where, f"speedup of layer {layer.name!r}", (layer.speedup_low, layer.speedup, layer.speedup_high))
        _require(where, f"eager_us of layer {layer.name!r}", (layer.eager_us,))
        _require(where, f"compiled_us of layer {layer.name!r}", (layer.compiled_us,))
    return report


def _require(where: str, name: str, figures: Sequence[float | None]) -> None:
    """Refuse figures that are impossible or out of order; an absent one is None.

    Raises:
        RequestError: a figure is too small or too large, or lies outside its interval.
    """
    known = [figure for figure in figures if figure is not None]
    if not all(LEAST <= figure <= LARGEST for figure in known) or known != sorted(known):
        shown = " ... ".join(f"{figure:g}" for figure in known)
        raise RequestError(one_line(f"{where}: impossible {name}: {shown}; write the report again"))
