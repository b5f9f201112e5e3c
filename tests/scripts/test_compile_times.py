"""Adding measured compile times to a profile: once each, with counts, the cores of their machine, without failures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from costmodel.calibration.compile_records import COMPILE_TIMES, read_compile_records
from costmodel.profiles.profile import DEFAULT, load_profile
from costmodel.timeline.compile_time import COLD, WARM
from tests.support.scripts import load_script

MODEL = "scripts/user_models/restoration.py:espcn"
CASE = {"model": MODEL, "batch_size": 1, "precision": "float32", "layout": "nchw", "session": "one"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("compile_times")


def process(seconds: float) -> dict[str, object]:
    return {"wrap_s": 0.5, "calls_s": [seconds, 0.25, 0.25], "graphs": 2, "breaks": [], "phases": {"a": 1.0}}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    file = tmp_path / "compile.jsonl"
    rows = [
        CASE | {"mode": "default", "cold": process(8.0), "warm": process(1.0)},
        CASE | {"mode": "reduce-overhead", "cold": process(9.0), "warm": process(1.5), "cores": 4},
        CASE | {"mode": "default", "run": "cold", "error": "RuntimeError: out of luck", "status": "error"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file.with_suffix(".env.json").write_text('{"cores": "16", "device": "some GPU"}')
    return file


def test_records_are_added_once_with_counts_of_the_measured_graphs(
    script: ModuleType, measured: Path, tmp_path: Path
) -> None:
    profile = replace(load_profile(DEFAULT), path=tmp_path)
    for _ in range(2):
        script.add(profile, [measured])
    found, about = read_compile_records(tmp_path / COMPILE_TIMES)
    assert about["schema"] == 1
    assert [(one.mode, one.cores, one.graphs) for one in found] == [("default", 16, 2), ("reduce-overhead", 4, 2)]
    # 0.5 s to wrap, and the first call beyond a steady one of 0.25 s
    assert [(one.seconds(COLD), one.seconds(WARM)) for one in found] == [(8.25, 1.25), (9.25, 1.75)]
    assert {one.device for one in found} == {"some GPU"}
    assert {one.counts["further_graph"] for one in found} == {1}
    assert all(one.counts["operator"] > 5 for one in found)
