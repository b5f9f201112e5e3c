"""`costmodel compare`: results, exit status, bad input in one line."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from costmodel.cli import main
from costmodel.report import Report, render
from tests.comparison.test_compare import slowed
from tests.support.sample_reports import report


def save(path: Path, *reports: Report) -> str:
    path.write_text(render(reports[0] if len(reports) == 1 else reports, "json"))
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    """Two files: the second is slower in `default` by half."""
    return [save(tmp_path / "a.json", report()), save(tmp_path / "b.json", slowed(report(), 1.5))]


def test_a_table(pair: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *pair]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("tiny on some-gpu, batch 2, float32\n")
    assert "slower" in out
    assert err == ""


@pytest.mark.parametrize(("form", "start"), [("md", "## tiny"), ("html", "<!DOCTYPE"), ("csv", "model,hardware,")])
def test_formats(form: str, start: str, pair: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *pair, "--format", form]) == 0
    assert capsys.readouterr().out.startswith(start)


def test_json(pair: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *pair, "--format", "json", "--fail-on-regression", "5"]) == 1
    record = json.loads(capsys.readouterr().out)
    (case,) = record["cases"]
    about = {"model": "tiny", "hardware": "some-gpu", "batch_size": 2, "precision": "float32", "arithmetic": ""}
    assert case["before"] == about
    latency = case["modes"][1]["latency"]
    assert (latency["before"], latency["after"], latency["ratio"], latency["verdict"]) == (4.0, 6.0, 1.5, "slower")
    assert [layer["name"] for layer in case["layers"]] == ["features.0", "head"]
    assert len(record["regressions"]) == 2


def test_csv_of_layers(pair: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["compare", *pair, "--format", "csv", "--layers", "all"]) == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["layer"], first["compiled_before"], first["compiled_after"]) == ("features.0", "10.0", "15.0")
    assert (second["layer"], second["verdict"], second["compiled_ratio"]) == ("head", "uncertain", "")


@pytest.mark.parametrize(("percent", "status"), [("5", 1), ("40", 1), ("51", 0)])
def test_regressions_set_the_exit_status(
    percent: str, status: int, pair: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["compare", *pair, "--fail-on-regression", percent]) == status
    out, err = capsys.readouterr()
    assert out  # the result is printed in any case
    assert ("costmodel: regression: tiny on some-gpu, batch 2, float32: default latency +50.0%" in err) == bool(status)
    assert main(["compare", *reversed(pair), "--fail-on-regression", "0"]) == 0


def test_lists_and_what_only_one_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = save(tmp_path / "a.json", report(), replace(report(), batch_size=32))
    second = save(tmp_path / "b.json", replace(report(), batch_size=32), replace(report(), model="new"))
    assert main(["compare", first, second]) == 0
    out = capsys.readouterr().out
    assert out.startswith("tiny on some-gpu, batch 32, float32\n")
    assert "only in the first file: tiny on some-gpu, batch 2, float32\n" in out
    assert "only in the second file: new on some-gpu, batch 2, float32\n" in out


class TestBadInput:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "not a report of `costmodel predict`"),
            (b"<html>", "not a report of `costmodel predict`"),
            (b"\x80\x81", "it is not text in UTF-8"),
            (b"[" * 100_000, "it is nested too deeply"),
            (b'{"schema": 4, "regions": []}', "of schema 1; write one with `costmodel predict MODEL --format json"),
            (b'{"schema": 0}', "of schema 1"),
            (b'[{"schema": 1}]', "report 1: not a report"),
        ],
    )
    def test_files_that_are_no_reports_get_one_line(
        self, content: bytes, said: str, pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        odd = tmp_path / "odd.json"
        odd.write_bytes(content)
        for arguments in ([pair[0], str(odd)], [str(odd), pair[0]]):
            assert main(["compare", *arguments]) == 2
            out, err = capsys.readouterr()
            assert out == ""
            assert err.count("\n") == 1
            assert err.startswith(f"costmodel: error: {odd}: ")
            assert said in err

    def test_a_fifo_does_not_block(self, pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
        os.mkfifo(tmp_path / "fifo")
        assert main(["compare", pair[0], str(tmp_path / "fifo")]) == 2
        assert "it is a FIFO, not a file" in capsys.readouterr().err

    def test_a_file_name_may_be_anything(self, pair: list[str], capsys: pytest.CaptureFixture[str]):
        assert main(["compare", pair[0], "\x1b[2J<b>=1\udcff.json"]) == 2
        err = capsys.readouterr().err
        assert err.isascii()
        assert err.count("\n") == 1
        assert "\x1b" not in err

    @pytest.mark.parametrize("percent", ["-1", "nan", "inf", "many"])
    def test_impossible_thresholds(self, percent: str, pair: list[str], capsys: pytest.CaptureFixture[str]):
        assert main(["compare", *pair, "--fail-on-regression", percent]) == 2
        err = capsys.readouterr().err
        assert "--fail-on-regression" in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize("where", ["absent/r.json", "a.json/r.json", "."])
    def test_a_place_that_cannot_be_written(
        self, where: str, pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        assert main(["compare", *pair, "-o", str(tmp_path / where)]) == 2
        err = capsys.readouterr().err
        assert err.startswith("costmodel: error: cannot write ")
        assert err.count("\n") == 1

    def test_a_directory_without_permission_to_write(
        self, pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        where = Path("/proc/self/report.json")  # no user may create a file there, root neither
        assert main(["compare", *pair, "-o", str(where)]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"costmodel: error: cannot write {where}: ")
        assert err.count("\n") == 1
        assert main(["compare", pair[0], str(tmp_path)]) == 2
        assert "it is a directory, not a file" in capsys.readouterr().err
