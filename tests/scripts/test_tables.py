"""`scripts/tables.py --check`: a document that differs from its tables is named, and nothing is written."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import load_script

ROOT = Path(__file__).parents[2]
MADE = "layers.py --rows docs/data/layers_h200.csv --write docs/accuracy.md"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with one document and one table, to be fast."""
    tables = load_script("tables")
    assert MADE in tables.COMMANDS
    monkeypatch.setattr(tables, "COMMANDS", (MADE,))
    monkeypatch.setattr(tables, "DOCUMENTS", ("docs/accuracy.md",))
    return tables


def test_a_document_that_differs_is_named(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "docs" / "accuracy.md"
    page.parent.mkdir()
    shutil.copy(ROOT / "docs" / "accuracy.md", page)
    script.make(tmp_path)
    made = page.read_text(encoding="utf-8")
    assert script.outdated(tmp_path) == ""
    begin = load_script("layers").BEGIN
    page.write_text(made.replace(f"{begin}\n|", f"{begin}\n| other", 1), encoding="utf-8")
    difference = script.outdated(tmp_path)
    assert difference.startswith("--- docs/accuracy.md\n")
    assert "\n-| other" in difference
    assert "\n| other" in page.read_text(encoding="utf-8")
    assert capsys.readouterr().out == ""


def test_every_script_and_document_is_there(script: ModuleType):
    tables = load_script("tables")
    for command in tables.COMMANDS:
        name, *arguments = command.split()
        assert (ROOT / "scripts" / name).is_file()
        assert sum(argument in tables.DOCUMENTS for argument in arguments) == 1
