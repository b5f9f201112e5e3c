"""A report as plain text for a terminal: modes, verdict, layers, then whatever the reader must be warned of."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from costmodel.report import rows
from costmodel.report.escape import terminal
from costmodel.report.types import Report

WIDE = 10**9
"""Columns where nothing limits the width: a file or a pipe gets every name whole."""

NARROW = 80
"""On a terminal with fewer columns the terminal breaks the lines, so that no figure is cut short."""

_RULE = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_STYLES = {"compile": "bold green", "leave": "bold", "uncertain": "bold yellow"}
_WORDS = {"mode", "layer", "operators", "backend", "operator", "way", "why", "peak at", "", "about", "where"}
"""Columns that are set to the left."""

_FOLDED = {"mode", "layer", "kind", "operators", "operator", "backend", "way", "peak at", "where", "why", ""}
"""Columns that are broken into lines where the terminal is narrow."""

_LEAST = 12
"""Characters that such a column keeps, if it has so many."""

_NAMED = {"mode", "layer"}
"""Columns that have so many in any case, so that tables of one report stand alike."""

_DETAILS = {"host ms", "device ms", "operators"}
"""Columns that a narrow terminal goes without."""


def to_table(reports: Sequence[Report], layers: str, width: int | None = None, color: bool = False) -> str:
    """Reports as text, a blank line between them.

    Args:
        reports: in the order in which they are printed.
        layers: `top`, `all` or `none`.
        width: columns of the terminal; None for no limit.
        color: whether to write terminal colours.
    """
    page = _Page(width, color)
    for index, report in enumerate(reports):
        if index:
            page.line()
        _print_report(page, report, layers)
    return page.text()


def plain_tables(
    title: str,
    sections: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
    notes: Sequence[str],
    width: int | None = None,
) -> str:
    """Titled tables under a headline, then notes.

    Args:
        title: the headline.
        sections: title, columns and cells of each table.
        notes: one line each.
        width: columns of the terminal; None for no limit.
    """
    page = _Page(width)
    page.line(title)
    for name, columns, cells in sections:
        page.line()
        page.line(name)
        page.table(columns, cells)
    for note in ("", *notes) if notes else ():
        page.line(note)
    return page.text()


class _Page:
    """Text that is made of lines and tables, each broken at the terminal's width; figures are never cut short."""

    def __init__(self, width: int | None, color: bool = False) -> None:
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

    def table(self, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        """A table; where its figures need more than the terminal has, the terminal breaks the lines."""
        table = _table(columns, cells)
        least = sum(column.min_width or 0 for column in table.columns) + len(columns)
        self._console.print(table, width=max(self._width, least))

    def fitting(self, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        """A table; on a terminal too narrow for all of it, without the columns that matter least."""
        if Measurement.get(self._console, self._console.options, _table(columns, cells)).maximum > self._width:
            kept = [index for index, name in enumerate(columns) if name not in _DETAILS]
            columns, cells = [columns[index] for index in kept], [[row[index] for index in kept] for row in cells]
        self.table(columns, cells)

    def text(self) -> str:
        """All of it."""
        return "\n".join(line.rstrip() for line in self._buffer.getvalue().splitlines()) + "\n"


def _print_report(page: _Page, report: Report, layers: str) -> None:
    page.line(rows.headline(report), "bold")
    page.fitting(rows.MODE_COLUMNS, rows.mode_rows(report))
    page.line(rows.verdict(report), _STYLES.get(report.verdict, ""))
    layer_rows = rows.layer_rows(report, layers)
    if layer_rows:
        page.line()
        page.line(rows.layers_title(report, layers), "bold")
        page.fitting(rows.LAYER_COLUMNS, layer_rows)
    reason_rows = rows.reason_rows(report)
    if reason_rows:
        page.line()
        page.line(rows.REASONS_TITLE, "bold")
        page.table(rows.REASON_COLUMNS, reason_rows)
    notes = rows.notes(report)
    if notes:
        page.line()
    for note in notes:
        page.line(note, "yellow")


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for index, column in enumerate(columns):
        widest = max((cell_len(terminal(row[index])) for row in cells), default=0)
        widest = max(widest, *map(len, (column or "-").split()))
        folded = column in _FOLDED
        table.add_column(
            Text(column.replace(" ", "\n")),
            vertical="bottom",
            justify="left" if column in _WORDS else "right",
            no_wrap=not folded,
            min_width=_LEAST if column in _NAMED else min(widest, _LEAST) if folded else widest,
            overflow="fold",
        )
    for row in cells:
        table.add_row(*map(_text, row))
    return table


def _text(words: str, style: str = "") -> Text:
    """Words in which nothing is markup or acts on the terminal."""
    return Text(terminal(words), style=style)
