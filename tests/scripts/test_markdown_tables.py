"""Markdown tables, and documents without the marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_tables import markdown_table, percent, replace_section

from costmodel.errors import DatasetError


def test_a_table_and_its_place_in_a_document(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text("before\n<b>\nold\n<e>\nafter\n")
    text = markdown_table(("a", "b"), [["1", percent(0.126)], ["2", percent(0.126, 0)]])
    assert text == "| a | b |\n| --- | --- |\n| 1 | 12.6 % |\n| 2 | 13 % |"
    assert replace_section(document, text, "<b>", "<e>") == f"before\n<b>\n{text}\n<e>\nafter\n"


def test_a_document_without_the_marks_is_refused(tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text("<b> no end")
    with pytest.raises(DatasetError, match=r"the marks <b> and <e> are missing"):
        replace_section(document, "text", "<b>", "<e>")
