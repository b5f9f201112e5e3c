"""Tables for terminals of any width: columns are dropped in a stated order, names are shortened, no line is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from costmodel.report.escape import terminal
from costmodel.report.shorten import cut, shortened

GAP = 2
"""Blank cells between two columns."""


@dataclass(frozen=True, slots=True)
class Cells:
    """A column of texts.

    Attributes:
        title: heading, of several lines if it has line ends.
        texts: a cell a row.
        is_figure: set to the right.
        drop: the columns of the highest number are dropped first where a terminal is too narrow; 0 for never.
        least: cells that the column may be shortened to; None for never shortened.
        keeps_ends: whether the middle is left out of a text that is too long, instead of its end.
        heads, tails: what stands before and after each text, and is never shortened; empty for none.
        styles: style of each cell; empty for none.
    """

    title: str
    texts: Sequence[str]
    is_figure: bool = False
    drop: int = 0
    least: int | None = None
    keeps_ends: bool = False
    heads: Sequence[str] = ()
    tails: Sequence[str] = ()
    styles: Sequence[str] = ()

    @property
    def width(self) -> int:
        """Cells of the longest text or word of the title."""
        return self._width([cell_len(terminal(text)) for text in self.texts])

    @property
    def shortest(self) -> int:
        """Least cells of the column."""
        least = self.least
        return self.width if least is None else self._width([min(least, cell_len(terminal(t))) for t in self.texts])

    def _width(self, texts: Sequence[int]) -> int:
        """Cells of a column whose texts take so many."""
        around = [cell_len(self.around(row, "")) for row in range(len(texts))]
        return max(*map(cell_len, self.title.split("\n")), *map(sum, zip(texts, around, strict=True)), 0)

    def around(self, row: int, text: str) -> str:
        """A text of a row between its head and tail."""
        return (self.heads[row] if self.heads else "") + text + (self.tails[row] if self.tails else "")

    def cell(self, row: int, width: int, mark: str) -> str:
        """Text of a row, shortened to a width and filled up to it."""
        room = max(0, width - cell_len(self.around(row, "")))
        text = (shortened if self.keeps_ends else cut)(terminal(self.texts[row]), room, mark)
        return self.filled(cut(self.around(row, text), width, ""), width)

    def filled(self, text: str, width: int) -> str:
        """A text with blanks on the side where it does not begin."""
        blank = " " * (width - cell_len(text))
        return blank + text if self.is_figure else text + blank


def fitted(columns: Sequence[Cells], width: int | None) -> list[tuple[Cells, int]]:
    """The columns that fit, with their widths; columns without any text are left out.

    Args:
        columns: all columns.
        width: cells of the terminal; None for no limit.
    """
    kept = [column for column in columns if any(column.texts)]
    if width is None:
        return [(column, column.width) for column in kept]
    while _total([column.shortest for column in kept]) > width and any(column.drop for column in kept):
        kept.remove(max(kept, key=lambda column: column.drop))
    widths = [column.shortest for column in kept]
    spare = max(0, width - _total(widths))
    for index, column in enumerate(kept):  # the first ones, which name the row, grow first
        more = min(spare, column.width - widths[index])
        widths[index] += more
        spare -= more
    if kept:  # figures are never cut: the first column gives way
        widths[0] = max(1, widths[0] - max(0, _total(widths) - width))
    return list(zip(kept, widths, strict=True))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(0, len(widths) - 1)


def table_lines(columns: Sequence[Cells], width: int | None, mark: str) -> list[Text]:
    """Lines of a table: the headings, then a line a row.

    Args:
        columns: columns with as many texts each.
        width: cells of the terminal; None for no limit.
        mark: stands for what is left out of a text.
    """
    kept = fitted(columns, width)
    if not kept:
        return []
    titles = [column.title.split("\n") for column, _ in kept]
    height = max(map(len, titles))
    lines = []
    for row in range(height):
        words = [[""] * (height - len(title)) + title for title in titles]
        line = [column.filled(cut(word[row], size, ""), size) for word, (column, size) in zip(words, kept, strict=True)]
        lines.append(_line([(text, "dim") for text in line]))
    for row in range(len(kept[0][0].texts)):
        cells = [(column.cell(row, size, mark), column.styles[row] if column.styles else "") for column, size in kept]
        lines.append(_line(cells))
    return lines


def _line(cells: Sequence[tuple[str, str]]) -> Text:
    line = Text(no_wrap=True)
    for index, (text, style) in enumerate(cells):
        line.append(" " * (GAP if index else 0))
        line.append(text, style)
    line.rstrip()
    return line
