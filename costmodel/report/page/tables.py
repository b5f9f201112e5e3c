"""Sections of documents as rows of cells for templates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from costmodel.report.document import Section
from costmodel.report.page.bars import linear_bar


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a cell, and the length of its bar in percent, or None for no bar."""

    text: str
    is_figure: bool
    bar: float | None = None


@dataclass(frozen=True, slots=True)
class PlainTable:
    """Headings and rows of a section."""

    title: str
    head: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    conclusion: str
    tone: str


def plain_table(section: Section) -> PlainTable:
    """A section as texts, with a bar in each cell of a column that has bars."""
    longest = [_longest(section, index) for index in range(len(section.columns))]
    rows = tuple(
        tuple(
            Cell(column.text(value), column.is_figure, _bar(value, most))
            for column, value, most in zip(section.columns, row, longest, strict=True)
        )
        for row in section.rows
    )
    head = tuple(Cell(column.title, column.is_figure) for column in section.columns)
    return PlainTable(section.title, head, rows, section.conclusion, section.tone.value)


def _longest(section: Section, index: int) -> float:
    """The largest value of a column that has bars; 0 where none is drawn."""
    values = [row[index] for row in section.rows] if section.columns[index].has_bar else []
    return max(filter(_is_finite, values), default=0.0)


def _bar(value: object, longest: float) -> float | None:
    if longest <= 0.0 or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return linear_bar(float(value), None, None, longest).at


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
