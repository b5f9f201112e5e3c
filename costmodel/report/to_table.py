"""Documents as plain text for a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from costmodel.report.document import Column, Document, Section, Tone
from costmodel.report.escape import terminal

WIDE = 10**9
"""Columns where nothing limits the width: a file or a pipe gets every name whole."""

NARROW = 80
"""On a terminal with fewer columns the terminal breaks the lines, so that no figure is cut short."""

_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_STYLES = {Tone.GOOD: "bold green", Tone.PLAIN: "bold", Tone.DOUBTFUL: "bold yellow"}
_HEADING, _NOTE = "bold", "yellow"

_LEAST = 12
"""Characters that a column of words keeps, if it has as many, and that one with `keeps_width` has in any case."""


def to_table(documents: Sequence[Document], width: int | None = None, color: bool = False) -> str:
    """Documents as text, a blank line between them.

    Args:
        documents: in the order in which they are printed.
        width: columns of the terminal; None for no limit.
        color: whether to write terminal colours.
    """
    page = _Page(width, color)
    for index, document in enumerate(documents):
        if index:
            page.line()
        _print(page, document)
    return page.text()


class _Page:
    """Text made of lines and tables, each broken at the terminal's width; figures are never cut short."""

    def __init__(self, width: int | None, color: bool) -> None:
        self._width = max(width or WIDE, NARROW)
        self._buffer = io.StringIO()
        self._console = Console(
            file=self._buffer,
            width=WIDE,
            force_terminal=color,
            no_color=not color,
            color_system="standard" if color else None,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def line(self, words: str = "", style: str = "") -> None:
        """A line of words."""
        self._console.print(_text(words, style), width=self._width)

    def table(self, section: Section) -> None:
        """A table; without its details where the terminal is too narrow for all of it.

        Where its figures still need more than the terminal has, the terminal breaks the lines.
        """
        table = _table(section)
        if Measurement.get(self._console, self._console.options, table).maximum > self._width:
            table = _table(section.without_details())
        least = sum(column.min_width or 0 for column in table.columns) + len(table.columns)
        self._console.print(table, width=max(self._width, least))

    def text(self) -> str:
        """The text so far."""
        return "\n".join(line.rstrip() for line in self._buffer.getvalue().splitlines()) + "\n"


def _print(page: _Page, document: Document) -> None:
    page.line(document.title, _HEADING)
    for section in document.sections:
        if section.title:
            page.line()
            page.line(section.title, _HEADING)
        page.table(section)
        if section.conclusion:
            page.line(section.conclusion, _STYLES[section.tone])
    if document.notes:
        page.line()
    for note in document.notes:
        page.line(note, _NOTE)


def _table(section: Section) -> Table:
    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    rows = list(section.cells())
    for index, column in enumerate(section.columns):
        _add_column(table, column, [row[index] for row in rows])
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _add_column(table: Table, column: Column, cells: Sequence[str]) -> None:
    title = re.sub(" (?!%)", "\n", column.title)  # a word a line, but `90 %` on one
    widest = max(map(cell_len, [*map(terminal, cells), *title.split("\n")]))
    least = widest if column.is_figure else min(widest, _LEAST)
    table.add_column(
        Text(title),
        vertical="bottom",
        justify="right" if column.is_figure else "left",
        no_wrap=column.is_figure,
        min_width=_LEAST if column.keeps_width else least,
        overflow="fold",
    )


def _text(words: str, style: str = "") -> Text:
    """Words in which nothing is markup or acts on the terminal."""
    return Text(terminal(words), style=style)
