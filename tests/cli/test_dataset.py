"""`costmodel dataset`: a ledger exported, datasets merged, and wrong requests refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import UnitCase
from costmodel.cli import main
from costmodel.training.dataset import read_frame

HERE = {"device": "NVIDIA H200", "torch": "2.11.0"}
CASE = {"model": "vgg11", "batch_size": 1, "precision": "float32", "layout": "nchw"}


def ledger(path: Path, *graphs: str) -> Path:
    with Ledger(path, HERE) as rows:
        for graph in graphs:
            rows.finish(UnitCase(graph, "aten"), "ok", {"device_us": [1.0, 2.0, 3.0, 4.0, 5.0]})
    return path


def test_ledgers_become_datasets_and_datasets_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    parts = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for part, graphs in zip(parts, (("x", "y"), ("y", "z")), strict=True):
        path = ledger(part.with_suffix(".sqlite"), *graphs)
        assert main(["dataset", "export", str(path), "-o", str(part)]) == 0
        assert capsys.readouterr().out == f"2 cases in {part}\n"
    assert main(["dataset", "merge", *map(str, parts), "-o", str(tmp_path / "all.parquet")]) == 0
    assert capsys.readouterr().out == f"3 cases in {tmp_path / 'all.parquet'}\n"
    assert set(read_frame(tmp_path / "all.parquet")[0]["graph"]) == {"x", "y", "z"}


@pytest.mark.parametrize(("options", "count"), [([], 1), (["--every-process"], 2)])
def test_records_of_models_are_merged(
    options: list[str], count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for file in files:
        file.write_text(json.dumps({**CASE, "latency_us": {"eager": [[1.0] * 5]}}) + "\n")
    out = tmp_path / "all.jsonl"
    assert main(["dataset", "merge", *map(str, files), "-o", str(out), *options]) == 0
    assert capsys.readouterr().out == f"{count} cases in {out}\n"
    assert len(out.read_text().splitlines()) == count + 1  # with the header


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["merge", "none.parquet", "-o", "out.parquet"], "none.parquet: "),
        (["merge", "none.jsonl", "-o", "out.jsonl"], "none.jsonl: cannot be read"),
        (["merge", "a.jsonl", "b.parquet", "-o", "out.jsonl"], "b.parquet: not a .jsonl file like a.jsonl"),
        (["merge", "a.jsonl", "-o", "out.parquet"], "out.parquet: not a .jsonl file like a.jsonl"),
        (["merge", "a.csv", "-o", "out.csv"], "a.csv: a dataset's name ends in .parquet or .jsonl"),
        (["merge", "a.parquet", "-o", "out.parquet", "--every-process"], "--every-process is for whole models"),
        (["export", "none.sqlite", "-o", "out.parquet"], "none.sqlite: there is no such ledger"),
        (["export", "none.sqlite", "-o", "out.csv"], "out.csv: a dataset's name ends in .parquet"),
        (["export", "none.sqlite", "-o", "none/out.parquet"], "none/out.parquet: there is no directory none"),
    ],
)
def test_a_wrong_request_gets_one_line_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(["dataset", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"costmodel: error: {message}")
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())
