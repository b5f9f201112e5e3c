"""Reports as documents: a title, sections of rows with typed columns, and notes. One renderer a format prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

Row = Sequence[Any]
"""The values of a row, one a column."""


class Tone(Enum):
    """Mood of a conclusion, for formats that have colours."""

    GOOD = "good"
    PLAIN = "plain"
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True)
class Column:
    """Heading of a column, and how its values are written.

    Attributes:
        title: the heading.
        text: turns a value into a cell's text.
        is_figure: set to the right and never broken; other columns hold words.
        is_detail: left out where a terminal is too narrow for the table.
        keeps_width: as wide in every table of a document, so that its tables are aligned.
        has_bar: drawn as a bar in formats that draw; values are numbers of at least 0.
    """

    title: str
    text: Callable[[Any], str] = str
    is_figure: bool = False
    is_detail: bool = False
    keeps_width: bool = False
    has_bar: bool = False


def figures(title: str, text: Callable[[Any], str], *, is_detail: bool = False, has_bar: bool = False) -> Column:
    """A column of figures."""
    return Column(title, text, is_figure=True, is_detail=is_detail, has_bar=has_bar)


@dataclass(frozen=True, slots=True)
class Section:
    """A table.

    Attributes:
        title: empty for a table that the document's title names.
        columns, rows: headings, and values in the order of the headings.
        conclusion: sentence under the table; empty for none.
        tone: mood of the conclusion.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    conclusion: str = ""
    tone: Tone = Tone.PLAIN

    def cells(self) -> Iterator[list[str]]:
        """The rows as texts."""
        for row in self.rows:
            yield [column.text(value) for column, value in zip(self.columns, row, strict=True)]

    def without_details(self) -> Section:
        """The section without the columns that a narrow terminal leaves out."""
        kept = [index for index, column in enumerate(self.columns) if not column.is_detail]
        rows = [[row[index] for index in kept] for row in self.rows]
        return Section(self.title, [self.columns[index] for index in kept], rows, self.conclusion, self.tone)


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of a CSV file: its columns, and a mapping a row; a missing key is an empty cell."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Document:
    """A report in a form that every renderer prints.

    Attributes:
        subject: name of the model or profile.
        title: headline.
        sections: tables, in order.
        notes: lines under the tables.
        values: the report for JSON.
        records: the report for CSV.
    """

    subject: str
    title: str
    sections: Sequence[Section]
    values: Mapping[str, Any]
    records: Records
    notes: Sequence[str] = ()
