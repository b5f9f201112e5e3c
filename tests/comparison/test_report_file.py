"""Report files of `compare`: what is read, and what is refused in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costmodel.comparison.compare import compare_reports
from costmodel.comparison.comparison_document import render_comparison
from costmodel.comparison.report_file import read_reports
from costmodel.errors import RequestError
from costmodel.report import FORMATS, render
from tests.support import sample_reports
from tests.support.hostile_json import DEEP, SETTINGS, mutated, refused_or

SAMPLE = sample_reports.report()


def read(directory: Path, text: str | bytes) -> Any:
    path = directory / "report.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_reports(path)


@pytest.mark.parametrize("kind", ["report", "with_breaks", "given_up", "failing"])
def test_what_predict_writes_is_read_as_it_was(kind: str, tmp_path: Path):
    made = getattr(sample_reports, kind)()
    assert read(tmp_path, render(made, "json")) == (made,)
    assert read(tmp_path, render([made, made], "json")) == (made, made)


@pytest.mark.parametrize(
    "key", ["host", "assumed_host", "extrapolated_share", "graphs", "layers", "leaning", "partial"]
)
def test_a_report_from_before_a_key_was_added_is_read(key: str, tmp_path: Path):
    record = SAMPLE.to_dict()
    del record[key]
    (found,) = read(tmp_path, json.dumps(record))
    assert found.modes == SAMPLE.modes


def test_unknown_keys_are_left_alone(tmp_path: Path):
    assert read(tmp_path, json.dumps(SAMPLE.to_dict() | {"later": {"a": [1]}})) == (SAMPLE,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 0}, "not a report of `costmodel predict` of schema 1"),
        ({"schema": 2}, "of schema 1; write one with `costmodel predict MODEL --format json -o FILE`"),
        ({"schema": None}, "of schema 1"),
        ({"modes": None}, "modes: expected object, got null"),
        ({"batch_size": "1"}, "batch_size: expected int, got str"),
        ({"modes": {"eager": {"latency_ms": -1.0}}}, "missing required field low_ms"),
    ],
)
def test_foreign_and_older_reports_are_refused(change: dict[str, Any], said: str, tmp_path: Path):
    with pytest.raises(RequestError) as refused:
        read(tmp_path, json.dumps(SAMPLE.to_dict() | change))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ({"low_ms": -1.0}, "impossible latency_ms of mode eager: -1 ... 6 ... 6.5"),
        ({"low_ms": 7.0}, "impossible latency_ms of mode eager: 7 ... 6 ... 6.5"),
        ({"latency_ms": 0.0, "low_ms": 0.0}, "impossible latency_ms"),
        ({"high_ms": 1e300}, "impossible latency_ms"),
    ],
)
def test_impossible_figures_are_refused(mode: dict[str, float], said: str, tmp_path: Path):
    record = SAMPLE.to_dict()
    record["modes"]["eager"] |= mode
    with pytest.raises(RequestError, match=said):
        read(tmp_path, json.dumps(record))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not a report of `costmodel predict`: "),
        (b"not JSON", "not a report of `costmodel predict`: "),
        (b"\xff\xfe\x00", "it is not text in UTF-8"),
        (DEEP.encode(), "it is nested too deeply"),
        (b'{"a": ' * 100_000, "it is nested too deeply"),
        (b"[]", "a list of 0 reports; give 1 to 10,000"),
        (b"[[]]", "report 1: not a report of `costmodel predict` of schema 1"),
        (b"null", "of schema 1"),
        (b'{"schema": 1}', "missing required field"),
        (b'{"schema": 1, "schema": 1}', "the key 'schema' occurs twice"),
    ],
)
def test_damaged_files_are_refused(text: bytes, said: str, tmp_path: Path):
    with pytest.raises(RequestError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_paths_that_are_no_files_are_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refusals = {"fifo": "it is a FIFO", ".": "it is a directory", "absent": "No such file", "loop": "symbolic links"}
    for name, said in refusals.items():
        with pytest.raises(RequestError, match=said):
            read_reports(tmp_path / name)
    with pytest.raises(RequestError, match="it is a device"):
        read_reports(Path(os.devnull))


@settings(SETTINGS, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutated(SAMPLE.to_dict()), st.sampled_from(FORMATS))
def test_a_hostile_report_is_refused_or_compared(tmp_path: Path, text: str, form: str):
    found = refused_or(lambda: read(tmp_path, text), RequestError)
    if found is not None:
        for pair in (found, (SAMPLE,)), ((SAMPLE,), found):
            assert render_comparison(compare_reports(*pair), form, "all")
