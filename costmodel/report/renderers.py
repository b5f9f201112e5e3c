"""Documents -> text, by one renderer a format."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.errors import RequestError
from costmodel.report.document import Document

FORMATS = ("table", "json", "csv", "md", "html")


def render_document(
    document: Document,
    format: str,  # noqa: A002 - the name of the command's option
    width: int | None = None,
    *,
    color: bool = False,
) -> str:
    """One document as text that ends in a newline; arguments and errors as for `render_documents`."""
    return render_documents((document,), format, width, color=color)


def render_documents(
    documents: Sequence[Document],
    format: str,  # noqa: A002 - the name of the command's option
    width: int | None = None,
    *,
    color: bool = False,
    as_list: bool = False,
) -> str:
    """Documents as text that ends in a newline. A renderer is imported when it is needed.

    Args:
        documents: printed in this order; CSV takes its columns from the first.
        format: one of FORMATS.
        width: columns of the terminal, for `table`; None for no limit.
        color: whether `table` may use terminal colours.
        as_list: whether JSON is a list also for a single document.

    Raises:
        RequestError: unknown format.
    """
    match format:
        case "table":
            from costmodel.report.to_table import to_table

            return to_table(documents, width, color)
        case "json":
            from costmodel.report.to_json import to_json

            return to_json(documents, as_list or len(documents) != 1)
        case "csv":
            from costmodel.report.to_csv import to_csv

            return to_csv(documents)
        case "md":
            from costmodel.report.to_markdown import to_markdown

            return to_markdown(documents)
        case "html":
            from costmodel.report.page.render import document_page

            return document_page(documents)
    raise RequestError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
