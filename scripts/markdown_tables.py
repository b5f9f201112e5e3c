"""Markdown tables, and the marks between which a script puts one into a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from costmodel.errors import DatasetError


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table; cells are Markdown themselves."""
    return "\n".join([_line(head), _line(["---"] * len(head)), *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def percent(share: float, digits: int = 1) -> str:
    """A share in percent."""
    return f"{100 * share:.{digits}f} %"


def replace_section(path: Path, text: str, begin_mark: str, end_mark: str) -> str:
    """Text of a file in which the part between two marks is replaced.

    Raises:
        DatasetError: the file has no such marks.
    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise DatasetError(f"{path}: the marks {begin_mark} and {end_mark} are missing")
    return f"{before}{begin_mark}\n{text}\n{end_mark}{after}"


def print_or_write(sections: Mapping[str, str], maker: str, document: Path | None) -> None:
    """Put tables between their marks in a document, or print them.

    Args:
        sections: name of each section, and its table.
        maker: script that makes them, in their marks: `<!-- NAME: made by MAKER -->` and `<!-- end of NAME -->`.
        document: the document; None to print.

    Raises:
        DatasetError: the document has no such marks.
    """
    for name, text in sections.items():
        if document is None:
            print(f"{text}\n")
            continue
        made = replace_section(document, text, f"<!-- {name}: made by {maker} -->", f"<!-- end of {name} -->")
        document.write_text(made, encoding="utf-8")
