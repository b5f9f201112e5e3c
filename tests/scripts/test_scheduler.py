"""Benchmark of several GPUs: differences with and without neighbours, and a run on a CPU."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from types import ModuleType

import pytest

from collectors.workloads.cases import Case
from tests.support.scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("scheduler")


def rows(place: str, **medians: float) -> dict[str, dict[str, object]]:
    return {
        name: {"status": "ok", "place": place, "device_us": [0, 0, us, 0, 0], "host_us": [0, 0, 10 * us, 0, 0]}
        for name, us in medians.items()
    }


def test_differences_by_repetition_and_by_gpu(script: ModuleType):
    alone = rows("gpu0", a=1.0, b=2.0)
    found = script.disturbance(rows("gpu0", a=1.01, b=2.0), rows("gpu0", a=1.1) | rows("gpu1", b=3.0), alone)
    assert found["again_alone"]["device_us"] | {"cases": 0} == found["again_alone"]["host_us"] | {"cases": 0}
    assert found["again_alone"]["device_us"]["median_absolute"] == 0.005
    assert found["with_neighbours"]["device_us"]["median_signed"] == 0.3
    same, other = found["with_neighbours_same_gpu"]["host_us"], found["with_neighbours_other_gpu"]["host_us"]
    assert (same["cases"], same["median_signed"]) == (1, 0.1)
    assert (other["cases"], other["median_signed"]) == (1, 0.5)


@pytest.mark.slow
def test_a_run_on_a_cpu(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):  # set by the script for its workers
        monkeypatch.setenv(name, str(tmp_path))
    text = "graph _ {{\n  input %a0: float32[{0}]\n  %0 = relu(self=%a0) : float32[{0}]\n  return %0\n}}"
    cases = [Case(text.format(size), "aten") for size in range(1, 5)]
    args = argparse.Namespace(device="cpu", seconds=200.0)
    found = script.run(cases, tmp_path / "ledger.sqlite", tmp_path / "caches", 2, args)
    assert (found["workers"], found["units"]) == (2, 4)
    assert found["measured_per_minute"] > found["units_per_minute"] > 0  # starting takes time, too
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "caches" / "triton")
