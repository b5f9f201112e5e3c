"""Reports as Markdown: headings and pipe tables."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.report import rows
from costmodel.report.escape import markdown
from costmodel.report.types import Report


def to_markdown(reports: Sequence[Report], layers: str) -> str:
    """A section for each report."""
    return "\n".join("\n".join(_section(report, layers)) + "\n" for report in reports)


def _section(report: Report, layers: str) -> list[str]:
    lines = [f"## {markdown(rows.headline(report))}", "", *pipe_table(rows.MODE_COLUMNS, rows.mode_rows(report))]
    lines += ["", f"**{markdown(rows.verdict(report))}**"]
    layer_rows = rows.layer_rows(report, layers)
    if layer_rows:
        lines += ["", f"### {markdown(rows.layers_title(report, layers))}", ""]
        lines += pipe_table(rows.LAYER_COLUMNS, layer_rows)
    reason_rows = rows.reason_rows(report)
    if reason_rows:
        lines += ["", f"### {rows.REASONS_TITLE}", "", *pipe_table(rows.REASON_COLUMNS, reason_rows)]
    notes = rows.notes(report)
    return [*lines, *([""] if notes else []), *(f"- {markdown(note)}" for note in notes)]


def pipe_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    """A table's lines; every cell is escaped."""
    return [_row(columns), "|" + " --- |" * len(columns), *map(_row, cells)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown, cells)) + " |"
