"""Documents as Markdown: headings, pipe tables and lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from costmodel.report.document import Document, Section
from costmodel.report.escape import markdown


def to_markdown(documents: Sequence[Document]) -> str:
    """A heading of the second level for each document."""
    return "\n".join("\n\n".join(_blocks(document)) + "\n" for document in documents)


def _blocks(document: Document) -> Iterator[str]:
    """Blocks that blank lines separate."""
    yield f"## {markdown(document.title)}"
    for section in document.sections:
        if section.title:
            yield f"### {markdown(section.title)}"
        yield _table(section)
        if section.conclusion:
            yield f"**{markdown(section.conclusion)}**"
    if document.notes:
        yield "\n".join(f"- {markdown(note)}" for note in document.notes)


def _table(section: Section) -> str:
    titles = [column.title for column in section.columns]
    return "\n".join([_row(titles), "|" + " --- |" * len(titles), *map(_row, section.cells())])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown, cells)) + " |"
