"""Runs of experiments: resumed, skipped, paused, and on a full disk."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from study import running
from study import table as tables
from study.directory import Record, open_record
from study.experiment import Experiment, Point, Row, Setup, SkippedError, Verdict, valued
from study.plots import new_figure
from study.running import Outcome, State, run_points
from study.summary import results_in, write_readme
from study.table import Table, read

from costmodel.errors import DatasetError, RequestError

ABOUT = {"device": "cpu", "torch": "x"}
ENVIRONMENT = {"device": "cpu", "torch": "x", "host_cpu": "y", "cores": "2"}


class Lab:
    """An experiment of three points that counts its measurements."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.measured: list[str] = []
        self.faults: dict[str, BaseException] = {}
        self.setup = Setup("cpu", True, directory)
        self.experiment = Experiment("lab", "Paper, table 1", "One is two.", self.points, self.figure, self.judge)

    def points(self, _setup: Setup) -> Iterable[Point]:
        if "all" in self.faults:
            raise self.faults["all"]
        return [Point(name, lambda name=name: self.measure(name)) for name in ("a", "b", "c")]

    def measure(self, name: str) -> list[Row]:
        self.measured.append(name)
        if name in self.faults:
            raise self.faults[name]
        return [valued({"case": name}, "time_ms", 1.5, 1.0, 2.0, 3)]

    def figure(self, _frame: pd.DataFrame):
        return new_figure()[0]

    def judge(self, frame: pd.DataFrame) -> Verdict:
        return Verdict(f"{len(frame)} of 3", len(frame) == 3)

    def run(self, deadline: float = math.inf) -> Outcome:
        table = Table(self.directory / "lab.csv", ABOUT)
        return run_points(self.experiment, self.setup, table, self.directory / ".lab.begun", deadline)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setattr(running.gc, "collect", int)  # of all that other tests have left
    return Lab(tmp_path)


def test_a_run_measures_each_point_once(lab: Lab):
    assert lab.run() == Outcome(State.DONE)
    assert lab.run() == Outcome(State.DONE)
    assert lab.measured == ["a", "b", "c"]
    frame = read(lab.directory / "lab.csv")
    assert list(frame["case"]) == ["a", "b", "c"]
    assert list(frame["device"]) == ["cpu"] * 3
    assert frame["load"].notna().all()


def test_an_interrupted_run_resumes(lab: Lab):
    lab.faults["b"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        lab.run()
    assert not (lab.directory / ".lab.begun").exists()
    del lab.faults["b"]
    lab.run()
    assert lab.measured == ["a", "b", "b", "c"]


def test_a_spent_budget_stops_before_the_next_point(lab: Lab):
    found = lab.run(deadline=time.monotonic() - 1)
    assert found == Outcome(State.PAUSED, "the budget is spent; 3 points are left")
    assert not lab.measured


def test_an_experiment_that_cannot_run_is_skipped_with_its_reason(lab: Lab):
    lab.faults["all"] = SkippedError("no GPU")
    assert lab.run() == Outcome(State.SKIPPED, "no GPU")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (SkippedError("too little memory"), "too little memory"),
        (torch.OutOfMemoryError("CUDA"), "out of memory"),
        (RuntimeError("kernel\nline"), "RuntimeError: kernel line"),
        (OSError(errno.ENOENT, "no compiler"), "FileNotFoundError: [Errno 2] no compiler"),
    ],
)
def test_a_point_that_fails_is_stored_with_its_reason(lab: Lab, fault: BaseException, reason: str):
    lab.faults["b"] = fault
    assert lab.run() == Outcome(State.DONE)
    frame = read(lab.directory / "lab.csv")
    assert tables.skipped(frame) == {"b": reason}
    assert list(frame["case"].dropna()) == ["a", "c"]
    lab.run()
    assert lab.measured == ["a", "b", "c"]  # not tried again


def test_rows_before_a_fault_stay():
    def rows():
        yield valued({"case": "a"}, "time_ms", 1.0)
        raise SkippedError("too little memory")

    first, second = running.measured(Point("a", rows))
    assert first["value"] == 1.0
    assert second["note"] == "skipped: too little memory"


class TestBrokenDevice:
    ON_CUDA = Setup("cuda", True, Path())
    FAULT = ({"quantity": "", "note": "skipped: CUDA error"},)

    def test_a_cpu_does_not_break(self, lab: Lab):
        assert not running.is_broken(lab.setup, self.FAULT)

    def test_it_is_looked_at_after_a_fault_only(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(torch, "rand", lambda *_, **__: pytest.fail("not asked"))
        assert not running.is_broken(self.ON_CUDA, [valued({}, "time_ms", 1.0)])

    @pytest.mark.parametrize("fault", [None, RuntimeError("illegal memory access")])
    def test_a_device_that_gives_no_numbers_is_broken(self, monkeypatch: pytest.MonkeyPatch, fault: Exception | None):
        def synchronize() -> None:
            if fault:
                raise fault

        monkeypatch.setattr(torch, "rand", lambda *_, **__: None)
        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
        assert running.is_broken(self.ON_CUDA, self.FAULT) == bool(fault)

    def test_the_point_is_stored_before_the_process_ends(self, lab: Lab, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(running, "is_broken", lambda *_: True)
        with pytest.raises(SystemExit) as ended:
            lab.run()
        assert ended.value.code == running.RESTART
        assert list(read(lab.directory / "lab.csv")["case"]) == ["a"]
        assert not (lab.directory / ".lab.begun").exists()


def test_reasons_are_listed_once_with_their_points():
    frame = pd.DataFrame({"point": ["a", "a", "b", "c"], "note": ["skipped: no", "skipped: no", "skipped: no", None]})
    assert tables.gaps(frame) == {"no": ["a", "b"]}


def test_a_full_disk_loses_one_point(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    write = tables.write_whole

    def full(path: Path, text: str) -> None:
        if "c," in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, text)

    monkeypatch.setattr(tables, "write_whole", full)
    found = lab.run()
    assert found.state is State.FAILED
    assert "No space left on device; c is not stored" in found.reason
    assert list(read(lab.directory / "lab.csv")["case"]) == ["a", "b"]
    monkeypatch.setattr(tables, "write_whole", write)
    assert lab.run() == Outcome(State.DONE)
    assert lab.measured == ["a", "b", "c", "c"]


def test_a_disk_full_for_a_measurement_ends_the_experiment(lab: Lab):
    lab.faults["a"] = OSError(errno.ENOSPC, "No space left on device", "/x")
    assert lab.run() == Outcome(State.FAILED, "cannot write /x: No space left on device; a is not stored")


def test_a_damaged_table_is_refused(lab: Lab):
    (lab.directory / "lab.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DatasetError, match="no column 'point'"):
        lab.run()


def test_points_begun_are_named_for_the_parent(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []
    monkeypatch.setattr(
        running, "measured", lambda point: seen.append((lab.directory / ".lab.begun").read_text()) or []
    )
    lab.run()
    assert seen == ["a", "b", "c"]


def test_a_rehearsal_runs_each_point_in_one_share_and_keeps_nothing(lab: Lab):
    lab.faults["b"] = RuntimeError("no")
    for share in (0, 1):
        running.rehearse([lab.experiment, lab.experiment], lab.setup, share, 2, math.inf)
    assert sorted(lab.measured) == ["a", "a", "b", "b", "c", "c"]
    assert not list(lab.directory.iterdir())


def test_a_rehearsal_leaves_out_what_compiles_nothing(lab: Lab):
    running.rehearse([replace(lab.experiment, compiles=False)], lab.setup, 0, 1, math.inf)
    assert not lab.measured


def test_a_rehearsal_leaves_out_what_is_measured(lab: Lab):
    running.rehearse([lab.experiment], lab.setup, 0, 1, math.inf, {"lab": {"a", "c"}, "another": {"b"}})
    assert lab.measured == ["b"]


def test_a_rehearsal_takes_no_time_to_measure(tmp_path: Path):
    setup = Setup("cpu", False, tmp_path, rehearses=True)
    assert (setup.seconds, setup.least, setup.chosen("full", "quick")) == (0.0, 1, "full")


class TestDirectory:
    def test_a_record_is_read_again(self, tmp_path: Path):
        record = Record(ENVIRONMENT, True, {}).having("lab", Outcome(State.PAUSED, "later"))
        record.write(tmp_path)
        assert open_record(tmp_path, ENVIRONMENT, quick=True) == record

    def test_results_of_another_environment_are_not_mixed(self, tmp_path: Path):
        Record(ENVIRONMENT, True, {}).write(tmp_path)
        with pytest.raises(RequestError, match="torch was x and is z"):
            open_record(tmp_path, {**ENVIRONMENT, "torch": "z"}, quick=True)

    def test_results_that_no_machine_changes_join_any(self, tmp_path: Path):
        record = Record(ENVIRONMENT, True, {})
        record.write(tmp_path)
        assert open_record(tmp_path, {**ENVIRONMENT, "torch": "z"}, quick=True, any_machine=True) == record

    def test_quick_and_full_results_are_not_mixed(self, tmp_path: Path):
        Record(ENVIRONMENT, True, {}).write(tmp_path)
        with pytest.raises(RequestError, match="results of a quick run"):
            open_record(tmp_path, ENVIRONMENT, quick=False)

    @pytest.mark.parametrize("text", ["", "[]", '{"outcomes": 3}', '{"outcomes": {"a": {"state": "x"}}}'])
    def test_a_damaged_record_is_refused(self, tmp_path: Path, text: str):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(RequestError, match="is damaged"):
            open_record(tmp_path, ENVIRONMENT, quick=True)


class TestReadme:
    def test_it_has_claim_result_and_verdict(self, lab: Lab):
        lab.run()
        write_readme(lab.directory, [lab.experiment], ENVIRONMENT, {}, quick=True)
        text = (lab.directory / "README.md").read_text()
        assert "| lab | Paper, table 1 | One is two. | 3 of 3 | holds | [csv](lab.csv) |" in text
        assert "A quick run" in text
        assert "Not measured" not in text

    def test_it_has_what_was_skipped_and_why(self, lab: Lab):
        lab.faults["b"] = SkippedError("no NVML")
        lab.run()
        other = Experiment("other", "Paper", "Claim.", lab.points, lab.figure, lab.judge)
        outcomes = {"other": Outcome(State.SKIPPED, "no GPU")}
        write_readme(lab.directory, [lab.experiment, other], ENVIRONMENT, outcomes, quick=False)
        text = (lab.directory / "README.md").read_text()
        assert "2 of 3 | does not hold" in text
        assert "- lab, b: no NVML" in text
        assert "- other: skipped: no GPU" in text

    def test_rows_that_do_not_suffice_are_not_judged(self, lab: Lab):
        lab.faults |= dict.fromkeys("abc", SkippedError("no"))
        lab.run()
        (result,) = results_in(lab.directory, [lab.experiment])
        assert result.verdict == Verdict("nothing could be measured", None)
