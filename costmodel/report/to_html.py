"""Documents as one HTML page that needs nothing else: no script, no font, no image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from costmodel.report.document import Column, Document, Section
from costmodel.report.escape import markup

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
.words { text-align: left; overflow-wrap: anywhere; }
.bar { display: block; height: .3rem; background: #4a7dcf; }
.conclusion { font-weight: 600; }
.notes { color: #b26a00; }
"""


def to_html(documents: Sequence[Document]) -> str:
    """A self-contained page, well-formed as XML too; every text is escaped."""
    title = markup(f"costmodel: {', '.join(document.subject for document in documents)}")
    body = "\n".join(f"<section>\n{chr(10).join(_blocks(document))}\n</section>" for document in documents)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _blocks(document: Document) -> Iterator[str]:
    yield f"<h1>{markup(document.title)}</h1>"
    for section in document.sections:
        if section.title:
            yield f"<h2>{markup(section.title)}</h2>"
        yield _table(section)
        if section.conclusion:
            yield f'<p class="conclusion">{markup(section.conclusion)}</p>'
    if document.notes:
        notes = "".join(f"<li>{markup(note)}</li>" for note in document.notes)
        yield f'<ul class="notes">{notes}</ul>'


def _table(section: Section) -> str:
    head = "".join(f"<th{_class(column)}>{markup(column.title)}</th>" for column in section.columns)
    longest = [_longest(section, index) for index in range(len(section.columns))]
    body = "".join(f"<tr>{_row(section.columns, row, longest)}</tr>\n" for row in section.rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def _row(columns: Sequence[Column], row: Sequence[object], longest: Sequence[float]) -> str:
    return "".join(
        f"<td{_class(column)}>{markup(column.text(value))}{_bar(value, most)}</td>"
        for column, value, most in zip(columns, row, longest, strict=True)
    )


def _class(column: Column) -> str:
    return "" if column.is_figure else ' class="words"'


def _longest(section: Section, index: int) -> float:
    """The largest value of a column that has bars; 0 where none is drawn."""
    values = [row[index] for row in section.rows] if section.columns[index].has_bar else []
    return max(filter(_is_finite, values), default=0.0)


def _bar(value: object, longest: float) -> str:
    if longest <= 0.0 or not isinstance(value, (int, float)) or not _is_finite(value):
        return ""
    return f'<span class="bar" style="width:{100.0 * max(0.0, value) / longest:.1f}%"></span>'


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
