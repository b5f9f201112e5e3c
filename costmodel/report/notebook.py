"""A prediction as a fragment of HTML for notebooks: the answer, the modes, the modules of most time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costmodel.report.advice import code_to_paste
from costmodel.report.escape import markup
from costmodel.report.mode_columns import mode_columns
from costmodel.report.prediction_document import headline, notes, verdict
from costmodel.report.size_text import size_of
from costmodel.report.terminal_columns import Cells
from costmodel.report.tree_columns import tree_columns
from costmodel.report.tree_rows import tree_rows

if TYPE_CHECKING:
    from costmodel.report import Report

_STYLE = """
.costmodel table { border-collapse: collapse; margin: .5em 0; font-variant-numeric: tabular-nums; }
.costmodel th, .costmodel td { padding: .1em .6em; text-align: left; white-space: pre; }
.costmodel .figure { text-align: right; }
.costmodel .green { color: #1a7f37; } .costmodel .red { color: #cf222e; } .costmodel .bold { font-weight: 600; }
"""


def fragment(report: Report) -> str:
    """A self-contained fragment without scripts; every text is escaped."""
    code, size = code_to_paste(report), size_of(report)
    parts = [
        f"<style>{_STYLE}</style>",
        f"<p><b>{markup(verdict(report))}</b></p>",
        f"<pre>{markup(code)}</pre>" if code else "",
        f"<p>{markup(headline(report))}{f'<br>{markup(size)}' if size else ''}</p>",
        _table(mode_columns(report, unicode=True)),
        _table(tree_columns(tree_rows(report.tree()), unicode=True)) if report.layers else "",
        "".join(f"<p>{markup(note)}</p>" for note in notes(report)),
    ]
    return f'<div class="costmodel">{"".join(parts)}</div>'


def _table(columns: Sequence[Cells]) -> str:
    kept = [column for column in columns if any(column.texts)]
    if not kept:
        return ""
    head = "".join(f"<th{_class(column, '')}>{markup(' '.join(column.title.split()))}</th>" for column in kept)
    rows = "".join(f"<tr>{_row(kept, row)}</tr>" for row in range(len(kept[0].texts)))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(columns: Sequence[Cells], row: int) -> str:
    return "".join(
        f"<td{_class(column, column.styles[row] if column.styles else '')}>"
        f"{markup(column.around(row, column.texts[row]))}</td>"
        for column in columns
    )


def _class(column: Cells, style: str) -> str:
    names = " ".join(filter(None, ["figure" if column.is_figure else "", style]))
    return f' class="{names}"' if names else ""
