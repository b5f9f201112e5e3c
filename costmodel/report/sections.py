"""Titled tables in every format that is for people: what memory reports, plans and validations are printed as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from costmodel.report import check_format
from costmodel.report.escape import markdown, markup
from costmodel.report.table import plain_tables
from costmodel.report.to_csv import csv_text
from costmodel.report.to_html import page, tagged_table
from costmodel.report.to_json import json_text
from costmodel.report.to_markdown import pipe_table

Section = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A title, columns, and rows of cells."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A headline, tables under it, and notes under those, one line each."""

    title: str
    sections: Sequence[Section]
    notes: Sequence[str] = ()


def render_sheet(sheet: Sheet, format: str, width: int | None = None) -> str:  # noqa: A002 - the command's option
    """A sheet as text that ends in a newline.

    Args:
        sheet: what is printed.
        format: `table`, `md` or `html`.
        width: columns of the terminal, for `table`; None for no limit.
    """
    if format == "table":
        return plain_tables(sheet.title, sheet.sections, sheet.notes, width)
    if format == "md":
        lines = [f"## {markdown(sheet.title)}", ""]
        for name, columns, cells in sheet.sections:
            lines += [f"### {markdown(name)}", "", *pipe_table(columns, cells), ""]
        return "\n".join([*lines, *(f"- {markdown(note)}" for note in sheet.notes)]).rstrip("\n") + "\n"
    body = [f"<h1>{markup(sheet.title)}</h1>"]
    for name, columns, cells in sheet.sections:
        body.append(f"<h2>{markup(name)}</h2>\n{tagged_table('sheet', columns, cells)}")
    body += [f'<p class="notes">{markup(note)}</p>' for note in sheet.notes]
    return page(f"costmodel: {sheet.title}", "\n".join(body))


def _render(
    values: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    sheet: Sheet,
    format: str,  # noqa: A002
    width: int | None,
) -> str:
    check_format(format)
    if format == "json":
        return json_text(values)
    if format == "csv":
        return csv_text(list(records[0]), map(_flat, records))
    return render_sheet(sheet, format, width)


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: " ".join(value) if isinstance(value, (list, tuple)) else value for key, value in record.items()}
