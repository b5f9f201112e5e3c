"""The comparison of ways to choose: pools and ways on a small example by hand, and the table shown is the file's."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from costmodel.scores import replace_section
from costmodel.train import Settings, Table
from tests.scripts import load_script

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("active_sampling")


def table(rows: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(rows, 2)).astype(np.float32)
    return Table(("a", "b"), raw, np.ones(rows), np.exp(raw[:, 0]).astype(np.float64), np.arange(rows))


@pytest.mark.parametrize("way", ["random", "farthest point", "space-filling", "active"])
def test_every_way_chooses_so_many_none_twice_and_keeps_what_it_chose(
    script: ModuleType, way: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(script, "SIZES", (40, 80, 100))
    pool = script.make_pool({"conv": table(150, 0), "triton": table(70, 1)})
    chosen = script.WAYS[way](pool, 0)
    assert [len(chosen[size]) for size in (40, 80, 100)] == [40, 80, 100]
    assert [len(set(chosen[size])) for size in (40, 80, 100)] == [40, 80, 100]
    assert set(chosen[40]) < set(chosen[80]) < set(chosen[100]) <= set(range(220))
    assert sum(len(part) for part in pool.parts(chosen[80])) == 80
    assert pool.parts([0, 149, 150, 219])[1].tolist() == [0, 69]


def test_what_is_tested_was_not_in_the_pool(script: ModuleType, monkeypatch: pytest.MonkeyPatch):
    """No shape of what is left out is in what may be chosen."""
    seen: list[set[int]] = []

    def remember(pool: object, test: list[Table], chosen: object, _seed: int) -> list[np.ndarray]:
        seen.append(set(test[0].shape.tolist()) & set(pool.tables[0].shape.tolist()))  # type: ignore[attr-defined]
        return [np.array([0.25, 0.75])]

    monkeypatch.setattr(script, "SIZES", (5,))
    monkeypatch.setattr(script, "errors_of", remember)
    (found,) = script.trials({"conv": table(100, 0)}, "random", 0)
    assert seen == [set()]
    assert (found.mean_error, found.median_error, found.by_group) == (0.5, 0.5, {"conv": 0.5})
    assert found.measuring_s == pytest.approx(1.0, abs=0.05)  # five at 0.2 s each


def test_few_rows_are_predicted_by_their_mean(script: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(script, "SETTINGS", Settings(hidden=(2,), epochs=1, ensemble=1))
    one = Table(("a",), np.zeros((2, 1), np.float32), np.ones(2), np.array([2.0, 8.0]), np.arange(2))
    pool = script.make_pool({"conv": one})
    (errors,) = script.errors_of(pool, [one], [0, 1], 0)
    assert errors == pytest.approx([1.0, 0.5])  # the geometric mean is 4


def test_tables_by_hand(script: ModuleType, monkeypatch: pytest.MonkeyPatch):
    """At 200 s, half way between 100 and 400 in logarithms: 0.2, the geometric mean of 0.4 and 0.1."""
    monkeypatch.setattr(script, "TIMES_S", (200,))
    found = [
        script.Trial("active", 0, 10, 0.4, 0.3, {"conv": 0.4, "gemm": 0.8}, 100.0, 4.0),
        script.Trial("active", 0, 20, 0.1, 0.1, {"conv": 0.1, "gemm": 0.2}, 400.0, 4.0),
    ]
    lines = script.table_markdown(found).splitlines()
    assert lines[2] == "| active | 40.0 % (60.0 %) | 10.0 % (15.0 %) | 4 s |"
    assert lines[-1] == "| active | 20.0 % (30.0 %) |"


def test_the_page_shows_what_was_computed(script: ModuleType):
    rows = json.loads((ROOT / "docs" / "active_sampling.json").read_text())
    shown = script.table_markdown([script.Trial(**row) for row in rows])
    page = ROOT / "docs" / "collecting.md"
    assert replace_section(page, shown, script.BEGIN, script.END) == page.read_text()
    assert {row["way"] for row in rows} == set(script.WAYS)
