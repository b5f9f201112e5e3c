"""Documents through every renderer."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from costmodel.errors import RequestError
from costmodel.report import FORMATS
from costmodel.report.document import Column, Document, Records, Section, Tone, figures
from costmodel.report.figures import tenths
from costmodel.report.renderers import render_document, render_documents

COLUMNS = (
    Column("mode", keeps_width=True),
    figures("device ms", tenths, is_detail=True),
    figures("latency ms", tenths, has_bar=True),
)


def document(subject: str = "tiny", **changes: object) -> Document:
    sections = (
        Section("", COLUMNS, [("eager", 3.0, 4.0), ("default", 2.0, 1.0)], "faster", Tone.GOOD),
        Section("regions", (figures("region", str), Column("why")), [(0, "fused")]),
    )
    records = Records(("mode", "layers"), [{"mode": "eager", "layers": ["a", "b"], "hidden": 1}, {"mode": "default"}])
    values: dict[str, object] = {"title": f"{subject} on a GPU", "sections": sections, "notes": ("a note",)}
    return Document(subject, values={"model": subject}, records=records, **(values | changes))  # type: ignore[arg-type]


def test_table() -> None:
    assert render_document(document(), "table") == (
        "tiny on a GPU\n"
        "              device  latency\n"
        "mode              ms       ms\n"
        "-----------------------------\n"
        "eager            3.0      4.0\n"
        "default          2.0      1.0\n"
        "faster\n"
        "\n"
        "regions\n"
        "region  why\n"
        "-------------\n"
        "     0  fused\n"
        "\n"
        "a note\n"
    )


def test_markdown() -> None:
    assert render_document(document(), "md") == (
        "## tiny on a GPU\n\n"
        "| mode | device ms | latency ms |\n| --- | --- | --- |\n| eager | 3.0 | 4.0 |\n| default | 2.0 | 1.0 |\n\n"
        "**faster**\n\n### regions\n\n| region | why |\n| --- | --- |\n| 0 | fused |\n\n- a note\n"
    )


def test_csv_takes_the_columns_of_the_first_document_and_joins_lists() -> None:
    text = render_documents((document(), document("other")), "csv")
    assert list(csv.reader(io.StringIO(text))) == [["mode", "layers"], *[["eager", "a b"], ["default", ""]] * 2]


def test_json_is_an_object_or_a_list() -> None:
    assert json.loads(render_document(document(), "json")) == {"model": "tiny"}
    assert json.loads(render_documents((document(),), "json", as_list=True)) == [{"model": "tiny"}]
    assert json.loads(render_documents((document(), document("b")), "json")) == [{"model": "tiny"}, {"model": "b"}]


def test_html_draws_bars_relative_to_the_longest() -> None:
    text = render_documents((document(), document("other")), "html")
    assert "<title>costmodel: tiny, other</title>" in text
    assert re.findall(r'class="fill" width="(.*?)"', text) == ["100.0", "25.0"] * 2  # 4 of 4, 1 of 4


def test_a_narrow_terminal_goes_without_details() -> None:
    wide = Section("", (*COLUMNS, Column("why")), [("eager", 3.0, 4.0, "x" * 60)])
    assert "3.0" in render_document(document(sections=(wide,)), "table", width=120)
    text = render_document(document(sections=(wide,)), "table", width=80)
    assert "3.0" not in text
    assert "4.0" in text


@pytest.mark.parametrize(("tone", "code"), [(Tone.GOOD, "\x1b[1;32m"), (Tone.PLAIN, "\x1b[1m"), (Tone.DOUBTFUL, "33m")])
def test_a_conclusion_has_the_colour_of_its_tone(tone: Tone, code: str) -> None:
    section = Section("", COLUMNS, [], "conclusion", tone)
    text = render_document(document(title="", sections=(section,), notes=()), "table", color=True)
    assert f"{code}conclusion" in text


@pytest.mark.parametrize("form", FORMATS)
def test_a_document_may_be_empty(form: str) -> None:
    assert render_document(document(sections=(), notes=()), form).endswith("\n")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(RequestError, match="unknown format 'pdf'; choose one of table, json, csv, md, html"):
        render_document(document(), "pdf")
