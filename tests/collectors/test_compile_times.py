"""Compile times on several devices: each has cores of its own and one compilation at a time."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collectors.whole_models import compile_times as module
from collectors.whole_models.case_process import Job
from collectors.whole_models.compile_times import compile_times, lanes_of, shares_of_cores
from collectors.whole_models.own_processes import OwnProcessSettings
from costmodel.errors import RequestError

CASES: list[Any] = [
    {"model": f"m{index}", "batch_size": 1, "precision": "float32", "layout": "nchw"} for index in range(5)
]


@pytest.fixture
def sixteen_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Eight physical cores, the second thread of core N being N + 8."""
    for core in range(16):
        place = tmp_path / f"cpu{core}" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{core % 8},{core % 8 + 8}\n")
    monkeypatch.setattr(module, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


@pytest.mark.usefixtures("sixteen_threads")
def test_shares_of_cores_are_equal_and_keep_threads_of_a_core_together():
    assert shares_of_cores(2) == [(0, 8, 1, 9, 2, 10, 3, 11), (4, 12, 5, 13, 6, 14, 7, 15)]
    assert [len(share) for share in shares_of_cores(3)] == [5, 5, 5]
    assert [lane.cores for lane in lanes_of(["cpu"])] == [()]
    assert [lane.cores[0] for lane in lanes_of(["cuda:0", "cuda:1"])] == [0, 4]
    assert [lane.variables["CUDA_VISIBLE_DEVICES"] for lane in lanes_of(["cuda:0", "cuda:1"])] == ["0", "1"]
    with pytest.raises(RequestError, match="tpu"):
        lanes_of(["tpu"])


class FakeProcess:
    """A process that is ready, and whose turn takes a moment; knows which lanes are busy."""

    busy: set[tuple[int, ...]]
    turns: list[tuple[str, int]]
    lock = threading.Lock()

    def __init__(self, job: Job) -> None:
        self.job, self.ready, self.record = job, True, None

    def start_turn(self) -> None:
        with self.lock:
            assert self.job.cores not in self.busy
            self.busy.add(self.job.cores)

    def finish_turn(self, seconds: float) -> dict[str, Any]:
        time.sleep(0.01)
        with self.lock:
            self.busy.remove(self.job.cores)
            self.turns.append((self.job.case["model"], len(self.busy)))
        compiled = {"wrap_s": 0.01, "calls_s": [2.0, 0.1, 0.1], "cudagraph_skips": 0}
        self.record = {"compiled": {self.job.modes[0]: compiled}, "phases": {}, "input_shape": [1]}
        return self.record

    def stop(self) -> None:
        """Nothing to stop."""


@pytest.mark.usefixtures("sixteen_threads")
def test_one_compilation_at_a_time_on_each_lane(monkeypatch: pytest.MonkeyPatch):
    FakeProcess.busy, FakeProcess.turns = set(), []
    monkeypatch.setattr(module, "prepare", lambda starts, *_: [FakeProcess(job) for job, _ in starts])
    settings = OwnProcessSettings(held=4, ready_s=1.0)
    done = {"m1@1 float32 nchw compile default": 1}
    found = list(
        compile_times(CASES, done, ["cuda:0", "cuda:1"], ("default",), settings, time.monotonic() + module.USUAL_S * 3)
    )
    assert sorted(record["model"] for record in found) == ["m0", "m2", "m3", "m4"]
    assert {record["cores"] for record in found} == {8}
    assert {record["cold_compile_s"] for record in found} == {2.01}
    assert len(FakeProcess.turns) == 2 * (4 + 2)  # each lane compiles once, unrecorded, before the first
    assert list(compile_times(CASES, {}, ["cuda:0"], ("default",), settings, time.monotonic())) == []
