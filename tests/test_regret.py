"""The regret of plans: by hand, and docs/plans.md's table is that of the file."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from costmodel.scores import replace_section
from tests.scripts import load_script

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("regret")


def test_by_hand(script: ModuleType):
    found = [
        script.Regret("a", 1, "float32", 110.0, 100.0, 0.5),
        script.Regret("b", 1, "float32", 100.0, 100.0, 1.0),
        script.Regret("a", 32, "float16", 100.0, 100.0, 0.0),
    ]
    assert script.regret_markdown(found).splitlines()[2:] == [
        "| 1, float32 | 2 | 75.0 % | 5.0 % | 10.0 % (a) |",
        "| 32, float16 | 1 | 0.0 % | 0.0 % | 0.0 % (a) |",
    ]


def test_the_page_shows_what_was_computed(script: ModuleType):
    rows = json.loads((ROOT / "docs" / "regret.json").read_text())
    page = ROOT / "docs" / "plans.md"
    table = script.regret_markdown([script.Regret(**row) for row in rows])
    assert replace_section(page, table, script.BEGIN, script.END) == page.read_text()
