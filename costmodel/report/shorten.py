"""Text cut to a width, with a mark where something was left out."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells


def shortened(text: str, width: int, mark: str) -> str:
    """Text of at most `width` cells; the middle of a longer one is left out, as both ends of a module's name matter.

    Args:
        text: printable text.
        width: cells of a terminal.
        mark: stands for what is left out.
    """
    if cell_len(text) <= width:
        return text
    if width <= cell_len(mark):
        return _start(text, width)
    left = width - cell_len(mark)
    head = _start(text, left // 2)
    return head + mark + _start(text[::-1], left - cell_len(head))[::-1]


def cut(text: str, width: int, mark: str) -> str:
    """Text of at most `width` cells; the end of a longer one is left out."""
    if cell_len(text) <= width:
        return text
    return _start(text, max(0, width - cell_len(mark))).rstrip() + _start(mark, width)


def _start(text: str, width: int) -> str:
    """The longest start of a text of at most `width` cells."""
    found = chop_cells(text[: width + 1], width)[0] if text and width > 0 else ""
    return found if cell_len(found) <= width else ""
