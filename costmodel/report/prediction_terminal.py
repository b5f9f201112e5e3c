"""Predictions as text for a terminal: the answer first, then modes, then the module tree, reasons and warnings."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from costmodel.report.advice import code_to_paste
from costmodel.report.escape import terminal
from costmodel.report.mode_columns import mode_columns
from costmodel.report.prediction_document import headline, layer_rows, layers_title, notes, verdict
from costmodel.report.size_text import size_of
from costmodel.report.terminal_columns import Cells, fitted, table_lines
from costmodel.report.tree_columns import MARK, NOTABLE, layer_columns, tree_columns
from costmodel.report.tree_rows import ROWS, TreeRow, tree_rows
from costmodel.report.types import Report

UNLIMITED = 140
"""Cells by which columns are chosen for a file or a pipe, where names are written whole."""
_STYLES = {"compile": "bold green", "leave": "bold"}
_HEADING, _CODE, _NOTE, _DOUBT = "bold", "cyan", "yellow", "bold yellow"
_LAST = 10**9


@dataclass(frozen=True, slots=True)
class Look:
    """How a prediction is written.

    Attributes:
        width: cells of the terminal; None for a file or a pipe.
        color: whether terminal colours may be used.
        unicode: whether bars and branches are drawn in Unicode instead of ASCII.
        depth: levels of modules below the model; None for as many as there are.
        sort: order of sibling modules; None for execution order.
        top: rows of modules; None for all.
    """

    width: int | None = None
    color: bool = False
    unicode: bool = False
    depth: int | None = None
    sort: str | None = None
    top: int | None = ROWS

    @property
    def mark(self) -> str:
        """Sign for text that is left out."""
        return "\u2026" if self.unicode else "..."


def to_terminal(reports: Sequence[Report], look: Look, layers: str | None = None) -> str:
    """Predictions as text that ends in a newline, a blank line between them.

    Args:
        reports: in the order in which they are printed.
        look: how they are written.
        layers: None for the module tree; `top` or `all` for a list of layers in its place, `none` for neither.
    """
    pages = (_page(report, look, layers) for report in reports)
    lines = [line for number, page in enumerate(pages) for line in ([Text("")] if number else []) + list(page)]
    return _text(lines, look)


def _text(lines: Sequence[Text], look: Look) -> str:
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=_LAST,
        force_terminal=look.color,
        no_color=not look.color,
        color_system="standard" if look.color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    for line in lines:
        console.print(line, soft_wrap=True)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _page(report: Report, look: Look, layers: str | None) -> Iterator[Text]:
    yield from _words(verdict(report), look, _STYLES.get(report.verdict, _DOUBT))
    if code := code_to_paste(report):
        yield Text(f"    {code}", _CODE)
    yield Text("")
    yield from _words(headline(report), look, _HEADING)
    if about := size_of(report):
        yield from _words(about, look)
    yield Text("")
    yield from _table(mode_columns(report, look.unicode), look)
    if layers is None and report.layers:
        yield Text("")
        rows = tree_rows(report.tree(), look.depth, look.sort, look.top)
        yield from _words(_tree_title(rows), look, _HEADING)
        yield from _table(tree_columns(rows, look.unicode), look)
    elif layers is not None and (shown := layer_rows(report, layers)):
        yield Text("")
        yield from _words(layers_title(report, layers), look, _HEADING)
        yield from _table(layer_columns(shown), look)
    if report.explanation:
        yield Text("")
        yield from _words("reasons", look, _HEADING)
    for item in report.explanation:
        yield from _words(f"{item.topic} {item.where}: {item.why}", look)
    lines = notes(report)
    if lines:
        yield Text("")
    for line in lines:
        yield from _words(line, look, _NOTE)


def _tree_title(rows: Sequence[TreeRow]) -> str:
    """Heading of the module tree, which explains the signs in it."""
    title = "modules, device time"
    if any(row.node.count > 1 for row in rows):
        title += "; xN: N identical ones together"
    if any(row.node.extrapolated_share >= NOTABLE for row in rows):
        title += f"; {MARK}: extrapolated"
    return title


def _words(words: str, look: Look, style: str = "") -> list[Text]:
    """Words broken between words; the lines after the first are indented."""
    text = Text(terminal(words), style)
    if look.width is None:
        return [text]
    lines = text.wrap(Console(width=look.width), max(1, look.width - 2))
    for line in lines:
        line.rstrip()
    return [Text("  ").append_text(line) if place else line for place, line in enumerate(lines)]


def _table(columns: Sequence[Cells], look: Look) -> list[Text]:
    if look.width is not None:
        return table_lines(columns, look.width, look.mark)
    return table_lines([column for column, _ in fitted(columns, UNLIMITED)], None, look.mark)
