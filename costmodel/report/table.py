"""A report as plain text for a terminal: modes, verdict, layers, then whatever the reader must be warned of."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.box import Box
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

_FOLDED = {"mode", "layer", "kind", "operators", "operator", "way", "peak at", "where", "why"}
"""Columns that are broken into lines where the terminal is narrow."""

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
    buffer = io.StringIO()
    console = _console(buffer, width, color)
    for index, report in enumerate(reports):
        if index:
            console.print()
        _print_report(console, report, layers)
    return _lines(buffer)


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
    buffer = io.StringIO()
    console = _console(buffer, width, color=False)
    console.print(_text(title))
    for name, columns, cells in sections:
        console.print()
        console.print(_text(name))
        console.print(_table(columns, cells))
    for note in ("", *notes) if notes else ():
        console.print(_text(note))
    return _lines(buffer)


def _console(buffer: io.StringIO, width: int | None, color: bool) -> Console:
    return Console(
        file=buffer,
        width=max(width or WIDE, NARROW),
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        markup=False,
        highlight=False,
        emoji=False,
    )


def _lines(buffer: io.StringIO) -> str:
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _print_report(console: Console, report: Report, layers: str) -> None:
    console.print(_text(rows.headline(report), style="bold"))
    console.print(_fitting(console, rows.MODE_COLUMNS, rows.mode_rows(report)))
    console.print(_text(rows.verdict(report), style=_STYLES.get(report.verdict, "")))
    layer_rows = rows.layer_rows(report, layers)
    if layer_rows:
        console.print()
        console.print(_text(rows.layers_title(report, layers), style="bold"))
        console.print(_fitting(console, rows.LAYER_COLUMNS, layer_rows))
    reason_rows = rows.reason_rows(report)
    if reason_rows:
        console.print()
        console.print(_text(rows.REASONS_TITLE, style="bold"))
        console.print(_table(rows.REASON_COLUMNS, reason_rows))
    notes = rows.notes(report)
    if notes:
        console.print()
    for note in notes:
        console.print(_text(note, style="yellow"))


def _fitting(console: Console, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    """The table; on a terminal too narrow for all of it, without the columns that matter least."""
    table = _table(columns, cells)
    needed = Measurement.get(console, console.options.update(width=WIDE), table).maximum
    if needed <= console.width:
        return table
    kept = [index for index, name in enumerate(columns) if name not in _DETAILS]
    return _table([columns[index] for index in kept], [[row[index] for index in kept] for row in cells])


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    table = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for column in columns:
        words = column in _WORDS
        table.add_column(
            Text(column.replace(" ", "\n")),
            vertical="bottom",
            justify="left" if words else "right",
            no_wrap=column not in _FOLDED,
            min_width=12 if column in ("mode", "layer") else None,
            overflow="fold",
        )
    for row in cells:
        table.add_row(*map(_text, row))
    return table


def _text(words: str, style: str = "") -> Text:
    """Words in which nothing is markup or acts on the terminal."""
    return Text(terminal(words), style=style)
