"""Ledgers with hostile values or other types: refused in one line, or every time is possible."""

from __future__ import annotations

import math
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given

from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import UnitCase
from costmodel.errors import DatasetError
from tests.support.hostile_json import SETTINGS, mutated, refused_or

HERE = {"device": "test"}

RECORD = {
    "attempt": 1,
    "device_us": [1.0, 2.0, 3.0, 4.0, 5.0],
    "host_us": None,
    "relative_error": math.nan,
    "copies": 4,
}


@SETTINGS
@given(text=mutated({**RECORD, "graph": "graph", "runner": "aten", "position": 0.5, "uses": 1}))
def test_a_ledger_whose_record_has_a_hostile_value_is_refused_or_has_possible_times(
    tmp_path_factory: pytest.TempPathFactory, text: str
):
    path = tmp_path_factory.getbasetemp() / "ledger.sqlite"
    if not path.exists():
        with Ledger(path, HERE) as ledger:
            ledger.finish(UnitCase("graph", "aten"), "ok", RECORD)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE results SET record = ?", (text,))
    database.close()
    with Ledger(path) as ledger:
        rows = refused_or(lambda: list(ledger.rows()), DatasetError)
    for row in rows or ():
        times = [us for name in ("device_us", "host_us") for us in row.get(name) or () if us is not None]
        assert all(0 <= us < math.inf for us in times)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE results SET key = x'ff'", "cannot be read: [0]: expected str, got bytes"),
        ("UPDATE results SET unit = NULL", "cannot be read: [1]: expected str, got null"),
        ("UPDATE results SET record = x'7b7d'", "cannot be read: expected str, got bytes"),
        ("UPDATE results SET record = CAST(x'ff' AS TEXT)", "cannot be read: Could not decode"),
        ("CREATE VIEW more AS SELECT 1", "not a ledger: it has the view more"),
        ("CREATE TRIGGER t AFTER INSERT ON about BEGIN DELETE FROM results; END", "it has the trigger t"),
        ("UPDATE about SET value = '[]' WHERE name = 'environment'", "not a ledger: expected object, got array"),
    ],
)
def test_a_ledger_of_other_types_is_refused(tmp_path: Path, statement: str, said: str):
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, HERE) as ledger:
        ledger.finish(UnitCase("graph", "aten"), "ok", RECORD)
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()

    def read() -> None:
        with Ledger(path) as ledger:
            list(ledger.rows())

    with pytest.raises(DatasetError, match=re.escape(said)) as caught:
        read()
    assert "\n" not in str(caught.value)
