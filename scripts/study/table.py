"""Table of an experiment: a CSV that is written whole after each point, and read again when a run resumes."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from costmodel.errors import DatasetError, own_words
from costmodel.files import write_whole
from study.experiment import Row

POINT = "point"
"""Column of the point that a row belongs to."""
LAST = ("quantity", "value", "low", "high", "samples", "note", "device", "torch", "load")
"""Columns after the labels."""
DIGITS = 5
"""Significant digits of numbers."""
SKIPPED = "skipped: "
"""Prefix of the note of a point that could not be measured."""


class Table:
    """Rows of an experiment, on disk.

    Args:
        path: the CSV; it is created with the first point.
        about: columns of the environment.
    """

    def __init__(self, path: Path, about: Mapping[str, object]) -> None:
        self._path = path
        self._about = about
        self._rows: list[Row] = read(path).to_dict("records") if path.exists() else []

    @property
    def points(self) -> frozenset[str]:
        """Points that are in the table."""
        return frozenset(str(row[POINT]) for row in self._rows)

    @property
    def frame(self) -> pd.DataFrame:
        """The rows."""
        return _frame(self._rows)

    def add(self, point: str, rows: Iterable[Row]) -> None:
        """Add the rows of a point, and write the file.

        Raises:
            OSError: the file cannot be written; the one on disk is whole, without this point.
        """
        about = {**self._about, "load": round(load(), 2)}
        added = [{POINT: point, **row, **about} for row in rows] or [{POINT: point, "note": "no rows", **about}]
        together = [*self._rows, *added]
        write_whole(self._path, _text(_frame(together)))
        self._rows = together


def load() -> float:
    """Processes that want a core of this machine, for each of its cores: more than 1 disturbs timings."""
    try:
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        return math.nan


def read(path: Path) -> pd.DataFrame:
    """Read a table.

    Raises:
        DatasetError: the file is not such a table.
    """
    try:
        frame = pd.read_csv(
            path, dtype={POINT: str, "note": str, "quantity": str}, keep_default_na=False, na_values=[""]
        )
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {own_words(error)}; remove it to measure again") from error
    if missing := [name for name in (POINT, "quantity", "value") if name not in frame]:
        raise DatasetError(f"{path} has no column {missing[0]!r}; remove it to measure again")
    return frame


def values(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Rows of one quantity that have a value."""
    return frame[(frame["quantity"] == quantity) & frame["value"].notna()]


def skipped(frame: pd.DataFrame) -> dict[str, str]:
    """Points that could not be measured to their end, with their reasons."""
    return {point: note.removeprefix(SKIPPED) for point, note in _notes(frame) if note.startswith(SKIPPED)}


def gaps(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Reasons of cases without a value, with the points that they concern."""
    found: dict[str, list[str]] = {}
    for point, note in _notes(frame):
        points = found.setdefault(note.removeprefix(SKIPPED), [])
        if point not in points:
            points.append(point)
    return found


def _notes(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Points with their notes."""
    rows = frame[frame["note"].notna()]
    return [(str(point), str(note)) for point, note in zip(rows[POINT], rows["note"], strict=True)]


def _frame(rows: Iterable[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows))
    for name in (POINT, *LAST):
        if name not in frame:
            frame[name] = None
    labels = [name for name in frame.columns if name not in (POINT, *LAST)]
    return frame[[POINT, *labels, *LAST]]


def _text(frame: pd.DataFrame) -> str:
    buffer = io.StringIO()
    frame.to_csv(buffer, index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")
    return buffer.getvalue()
