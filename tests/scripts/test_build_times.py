"""Build times: the table by hand, rows resumed, failures kept, another environment refused."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import build_times as script
import pytest
from build_times import COLUMNS, WAYS, BuildCase, Table

CASE = BuildCase("resnet18", 1, None, "float32", "cpu", None, "plan")


def test_ratios_are_to_the_cold_compilation():
    rows = [
        {"model": "a", "way": way, "run": run, "seconds": seconds}
        for way, run, seconds in (("default", "cold", "20"), ("plan", "cold", "10"), ("plan", "warm", "5"))
    ]
    lines = script.summary([*rows, {"model": "b", "way": "plan", "run": "cold", "seconds": ""}])
    assert lines[0].split() == [
        "model",
        "default",
        "plan",
        "cold",
        "plan",
        "warm",
        "backend",
        "cold",
        "backend",
        "warm",
    ]
    assert lines[1].split() == ["a", "20.0", "s", "10.0", "s", "(0.50x)", "5.0", "s", "(0.25x)"]
    assert len(lines) == 2


def test_means_of_a_document_are_geometric_and_of_models_that_have_both():
    """0.5 and 2 make 1; of a model without torch.compile's time nothing counts."""
    times = {"a": (20, 10), "b": (5, 10), "c": (None, 7)}
    rows = [
        {"model": model, "way": way, "run": "cold", "seconds": "" if seconds is None else str(seconds)}
        for model, both in times.items()
        for way, seconds in zip(("default", "plan"), both, strict=True)
    ]
    lines = script.document_table(rows).splitlines()
    assert lines[2] == "| a | 20.0 s | 10.0 s (0.50x) | - | - | - |"
    assert lines[4] == "| c | - | 7.0 s | - | - | - |"
    assert lines[5] == "| *geometric mean* | 1 | 1.00x of 2 | - | - | - |"


def test_rows_are_kept_and_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked = []

    def measured(case, cache, seconds):
        asked.append((case.way, cache.name))
        return {"note": "failed: x"} if len(asked) == 1 else {"seconds": 1.0, "note": "a, b"}

    monkeypatch.setattr(script, "measured", measured)
    path = tmp_path / "times.csv"
    for _ in range(3):
        table = Table(path, "cpu")
        script.measure_model([CASE], table, time.monotonic() + 60, tmp_path)
    assert asked == [("plan", "resnet18-plan")] * 4  # cold fails; then both again
    assert [row["seconds"] for row in table.rows] == ["", "1.0", "1.0", "1.0"]
    assert table.rows[-1]["note"] == "a, b"
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)


def test_nothing_starts_after_the_budget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(script, "measured", lambda *_: pytest.fail("started"))
    script.measure_model([CASE], Table(tmp_path / "t.csv", "cpu"), time.monotonic() - 1, tmp_path)


def test_a_file_of_another_environment_is_refused(tmp_path: Path):
    path = tmp_path / "times.csv"
    Table(path, "cpu")
    facts = path.with_suffix(".env.json")
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"torch": "1.0"}))
    with pytest.raises(SystemExit, match=r"another environment \(torch was 1.0 and is"):
        Table(path, "cpu")


def test_a_process_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(script.sys, "executable", "/bin/false")
    assert script.measured(CASE, tmp_path, 10) == {"note": "failed: no message"}


def test_quick_is_one_small_network_in_every_way():
    args = argparse.Namespace(
        device="cpu", hardware=None, img_size=None, batch_size=None, precision=None, quick=True, models=[], way=None
    )
    (cases,) = script.cases_of(args)
    assert [case.way for case in cases] == list(WAYS)
    assert {(case.model, case.img_size, case.batch_size) for case in cases} == {("mobilenet_v3_small", 64, 1)}
