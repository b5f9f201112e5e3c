"""Sections of a document: texts of their cells, and what a narrow terminal leaves out."""

from __future__ import annotations

import pytest

from costmodel.report.document import Column, Section, Tone, figures

COLUMNS = (
    Column("name"),
    figures("ms", lambda value: f"{value:.1f}"),
    figures("detail", str, is_detail=True),
    Column("why", str.upper, is_detail=True),
)
SECTION = Section("title", COLUMNS, [("a", 1.25, 3, "x"), ("b", 2.0, 4, "y")], "so it is", Tone.GOOD)


def test_a_cell_is_written_by_its_column() -> None:
    assert list(SECTION.cells()) == [["a", "1.2", "3", "X"], ["b", "2.0", "4", "Y"]]


def test_a_row_has_a_value_for_each_column() -> None:
    with pytest.raises(ValueError, match="zip"):
        list(Section("", COLUMNS, [("a", 1.0)]).cells())


def test_details_are_left_out_with_their_values_and_nothing_else() -> None:
    short = SECTION.without_details()
    assert [column.title for column in short.columns] == ["name", "ms"]
    assert list(short.cells()) == [["a", "1.2"], ["b", "2.0"]]
    assert (short.title, short.conclusion, short.tone) == ("title", "so it is", Tone.GOOD)
    assert list(short.without_details().cells()) == list(short.cells())


def test_a_column_is_of_words_unless_it_is_of_figures() -> None:
    assert not Column("name").is_figure
    ms = figures("ms", str, has_bar=True)
    assert (ms.is_figure, ms.has_bar, ms.is_detail, ms.keeps_width) == (True, True, False, False)
