"""Faults of cases and processes, made to happen on the CPU, that a sweep must survive.

Measuring processes are real. Operators that hang, crash or stall do so really: a `sitecustomize` on the processes' path
adds them to ATen.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import costmodel
from collectors.processes.environment import environment
from collectors.sweep import unit_timing
from collectors.sweep.executor import locked, sweep
from collectors.sweep.ledger import Ledger
from collectors.sweep.measuring_process import MeasuringProcess
from collectors.sweep.settings import Progress, SweepSettings
from collectors.sweep.sweep import summary, tally
from collectors.sweep.unit_timing import attempt, measure_case
from collectors.workloads.cases import UnitCase, write_cases
from costmodel.errors import DatasetError, MeasurementError
from costmodel.measurement.timers import Measurement

ROOT = Path(costmodel.__file__).parent.parent
HERE = {"device": "test"}

FAULTY_OPERATORS = """
import os, signal, sys, time
import torch
library = torch.library.Library("aten", "FRAGMENT")
def crash(x):
    os.kill(os.getpid(), signal.SIGSEGV)
def crash_once(x):
    marker = os.environ["CRASHED_ONCE"]
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return x + 1
def hang(x):
    time.sleep(3600)
def slow(x):
    time.sleep(0.03)
    return x + 1
for function in (crash, crash_once, hang, slow):
    library.define(f"costmodel_{function.__name__}(Tensor self) -> Tensor")
    library.impl(f"costmodel_{function.__name__}", function, "CPU")
"""


def case_of(op: str, size: int = 64, unit: str = "") -> UnitCase:
    kind = f"float32[{size}]"
    return UnitCase(f"graph _ {{\n  input %a0: {kind}\n  %0 = {op}(self=%a0) : {kind}\n  return %0\n}}", "aten", unit)


def inductor_case(op: str) -> UnitCase:
    return UnitCase(f"graph _ {{\n  input %a0: float32[64]\n  {op} : float32[64]\n  return %0\n}}", "inductor")


def ignore(_progress: Progress) -> None:
    pass


def ends(path: Path) -> list[str]:
    with Ledger(path) as ledger:
        return [row["status"] for row in ledger.rows()]


def row_of(path: Path, case: UnitCase) -> dict[str, object]:
    with Ledger(path) as ledger:
        return next(row for row in ledger.rows() if row["key"] == case.key)


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives measuring processes the faulty operators; returns the path of a new ledger."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(FAULTY_OPERATORS)
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{ROOT}")
    monkeypatch.setenv("CRASHED_ONCE", str(tmp_path / "crashed"))
    return tmp_path / "ledger.sqlite"


class TestMeasuringProcess:
    """A fault is recorded for its case, and the sweep goes on."""

    @pytest.mark.slow
    def test_crashes_and_hangs_end_their_own_case_only(self, faulty: Path):
        crash, hang = case_of("costmodel_crash"), case_of("costmodel_hang")
        once = case_of("costmodel_crash_once")
        cases = [case_of("relu"), crash, case_of("relu", 65), hang, once, case_of("relu", 66)]
        seen: list[Progress] = []
        sweep(cases, faulty, SweepSettings("cpu", 300.0, hang_seconds=7.0), seen.append)
        good = {row_of(faulty, case_of("relu", size))["status"] for size in (64, 65, 66)}
        assert good <= {"ok", "noisy"}
        crashed = row_of(faulty, crash)
        assert (crashed["status"], crashed["error"]) == ("crashed", "killed by SIGSEGV")
        assert crashed["attempt"] == 2
        assert crashed["graph"] == crash.graph
        hung = row_of(faulty, hang)
        assert (hung["status"], hung["error"]) == ("timeout", "did not end in 7 s, and was killed")
        assert row_of(faulty, once)["status"] in ("ok", "noisy")
        last = seen[-1]
        assert (last.phase, last.done, last.total, last.units) == ("measuring", 6, 6, 6)
        assert last.units_per_minute > 0
        assert last.seconds_left == 0
        assert tally(faulty)[0] == 6
        assert "1 x killed by SIGSEGV" in summary(faulty, 1.0)

    @pytest.mark.slow
    def test_a_case_that_takes_all_memory_is_recorded_and_the_process_replaced(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        sweep([greedy(), case_of("relu")], path, SweepSettings("cpu", 120.0), ignore)
        assert row_of(path, greedy())["status"] == "oom"
        assert "can't allocate memory" in str(row_of(path, greedy())["error"])
        assert row_of(path, case_of("relu"))["status"] in ("ok", "noisy")

    def test_a_shortage_of_memory_recycles_the_process(self):
        status, record, healthy = attempt(greedy(), "cpu")
        assert status == "oom"
        assert set(record) == {"error"}
        assert not healthy

    @pytest.mark.parametrize(
        ("error", "healthy"),
        [
            (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
            (MeasurementError("not capturable in a CUDA graph: operation not permitted"), False),
            (RuntimeError("shape '[3]' is invalid"), True),
        ],
    )
    def test_errors_that_poison_the_process_end_it(
        self, error: Exception, healthy: bool, monkeypatch: pytest.MonkeyPatch
    ):
        def fail(*_given: object) -> None:
            raise error

        monkeypatch.setattr(unit_timing, "measure_case", fail)
        status, record, fit = attempt(case_of("relu"), "cuda")
        assert (status, fit) == ("failed", healthy)
        assert str(error) in record["error"]

    def test_a_case_that_raises_is_failed_with_its_own_words(self):
        status, record, healthy = attempt(case_of("no_such_operator"), "cpu")
        assert (status, healthy) == ("failed", True)
        assert "no operator aten.no_such_operator" in record["error"]

    @pytest.mark.slow
    def test_processes_that_cannot_start_end_the_sweep_with_their_last_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text("import os; print('no luck today', flush=True); os._exit(9)")
        monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{ROOT}")
        with pytest.raises(
            MeasurementError, match=r"ends before it is ready: exit status 9: no luck today; see .*ledger\.log"
        ):
            sweep([case_of("relu")], tmp_path / "ledger.sqlite", SweepSettings("cpu", 60.0), ignore)


def greedy() -> UnitCase:
    """A graph that says it is small, and asks for a petabyte."""
    text = "graph _ {\n  input %a0: float32[4]\n  %0 = new_empty(self=%a0, size=[281474976710656]) : float32[4]\n"
    return UnitCase(text + "  return %0\n}", "aten")


def random_sleeper() -> Callable[[], object]:
    rng = random.Random(0)
    library = torch.library.Library("aten", "FRAGMENT")

    def nap(x: torch.Tensor) -> torch.Tensor:
        time.sleep(rng.choice((0.0, 0.004)))
        return x + 1

    library.define("costmodel_nap(Tensor self) -> Tensor")
    library.impl("costmodel_nap", nap, "CPU")
    return lambda: library


class TestResult:
    """A time that is not to be trusted says so."""

    @pytest.mark.parametrize(("each", "status"), [(0, "ok"), (1000, "noisy")])
    def test_a_time_that_other_processes_stretch_is_noisy_however_even(
        self, monkeypatch: pytest.MonkeyPatch, each: int, status: str
    ):
        count = iter(range(0, 10**9, each) if each else iter(int, 1))
        monkeypatch.setattr(unit_timing, "interruptions", lambda: next(count))
        monkeypatch.setattr(unit_timing, "_time_on_cpu", lambda _: (Measurement((100.0, 101.0, 102.0)), 1))
        found, record = measure_case(case_of("relu"), "cpu")
        assert found == status
        if each:
            assert record["complaint"] == "noisy: other processes took a core 1000 times in 3 samples"

    def test_a_time_that_jumps_is_noisy_and_says_why(self):
        keep = random_sleeper()
        status, record = measure_case(case_of("costmodel_nap"), "cpu")
        assert keep()
        assert status == "noisy"
        assert record["complaint"].startswith("noisy: the interquartile range is")
        assert len(record["device_us"]) == 5

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore")  # of torch's own compiler
    @pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU")
    def test_a_compiled_result_that_differs_is_wrong(self):
        random_values = inductor_case("%0 = rand_like(self=%a0)")  # eager and compiled draw other numbers
        status, record = measure_case(random_values, "cpu")
        assert status == "wrong"
        assert record["relative_error"] > 0.1
        no_number = inductor_case("%0 = acosh(self=%a0)")  # of values below one
        status, record = measure_case(no_number, "cpu")
        assert status == "wrong"
        assert record["relative_error"] != record["relative_error"]

    def test_a_clock_that_stands_still_is_refused(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(time, "perf_counter_ns", lambda: 5)
        with pytest.raises(MeasurementError, match="clock did not advance"):
            measure_case(case_of("relu"), "cpu")


SWEEP = """
import sys, warnings
from pathlib import Path
from collectors.sweep.executor import sweep
from collectors.sweep.settings import SweepSettings
from collectors.workloads.cases import read_cases
if __name__ == "__main__":
    path = Path(sys.argv[1])
    sweep(list(read_cases(path / "cases.jsonl")), path / "ledger.sqlite", SweepSettings("cpu", 200.0), lambda _: None)
"""


class TestExecutor:
    """Sweeps killed, resumed, and kept apart."""

    @pytest.mark.slow
    def test_a_killed_sweep_takes_its_process_along_and_resuming_loses_no_case(self, faulty: Path):
        cases = [case_of("costmodel_slow", size) for size in range(1, 8)]
        write_cases(faulty.parent / "cases.jsonl", cases)
        kill_sweep_when(lambda: faulty.exists() and len(ends(faulty)) >= 1, faulty.parent)
        before = ends(faulty)
        assert 1 <= len(before) < len(cases)
        sweep(cases, faulty, SweepSettings("cpu", 120.0), ignore)
        with Ledger(faulty) as ledger:
            rows = list(ledger.rows())
        assert len(rows) == len({row["key"] for row in rows}) == len(cases)
        assert {row["status"] for row in rows} <= {"ok", "noisy"}

    def test_two_sweeps_do_not_share_a_ledger(self, tmp_path: Path):
        with locked(tmp_path / "ledger.sqlite"), pytest.raises(DatasetError, match="another sweep is writing"):
            sweep([case_of("relu")], tmp_path / "ledger.sqlite", SweepSettings("cpu", 10.0), ignore)

    def test_a_ledger_that_cannot_be_written_is_refused(self, tmp_path: Path):
        with pytest.raises(DatasetError, match="cannot be written"):
            sweep([case_of("relu")], tmp_path / "none" / "ledger.sqlite", SweepSettings("cpu", 10.0), ignore)

    @pytest.mark.slow
    def test_a_process_that_prepared_its_compiler_measures_and_ends_when_closed(self, tmp_path: Path):
        process = MeasuringProcess("cpu", 60.0, tmp_path / "log", {"OMP_NUM_THREADS": "1"})
        try:
            process.prepare_compiler()
            (pid,) = processes_measuring_for(os.getpid())
            assert process.measure(case_of("relu")).status in ("ok", "noisy")
            assert process.about()["environment"]["threads"] == "1"
            assert processes_measuring_for(os.getpid()) == [pid]  # the same process did both
        finally:
            process.close()
        assert not processes_measuring_for(os.getpid())
        with pytest.raises(MeasurementError, match="closed"):
            process.measure(case_of("relu"))

    @pytest.mark.slow
    def test_a_case_that_was_alone_when_sweeps_were_killed_is_given_up_after_two(self, faulty: Path):
        """A resumed sweep gets past a case, whatever that does to the machine."""
        hang = case_of("costmodel_hang")
        write_cases(faulty.parent / "cases.jsonl", [hang])
        kill_sweep_when(lambda: started(faulty) == 1, faulty.parent)
        kill_sweep_when(lambda: started(faulty) == 2, faulty.parent)
        sweep([hang, case_of("relu")], faulty, SweepSettings("cpu", 120.0), ignore)
        given_up = row_of(faulty, hang)
        assert (given_up["status"], given_up["attempt"]) == ("crashed", 2)
        assert given_up["error"] == "the sweep was killed while it was measured"
        assert row_of(faulty, case_of("relu"))["status"] in ("ok", "noisy")

    def test_nothing_left_to_do_starts_no_process(self, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        with Ledger(path, environment("cpu")) as ledger:
            ledger.finish(case_of("relu"), "ok", {})
        sweep([case_of("relu")], path, SweepSettings("cpu", 10.0), ignore)
        assert ends(path) == ["ok"]
        assert not path.with_suffix(".log").exists()

    def test_the_time_left_follows_from_the_rate(self):
        progress = Progress("measuring", done=30, total=90, seconds=60.0, units=20)
        assert progress.units_per_minute == 20.0
        assert progress.seconds_left == 120.0
        assert Progress("measuring", 0, 90, 0.0).seconds_left is None
        assert Progress("measuring", 0, 90, 0.0).units_per_minute == 0.0


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def kill_sweep_when(condition: Callable[[], bool], place: Path) -> None:
    """Starts a sweep of the cases of a directory, kills it, and waits for the end of its measuring process."""
    running = subprocess.Popen([sys.executable, "-c", SWEEP, str(place)], cwd=ROOT)
    try:
        wait_until(condition)
    finally:
        running.kill()
        running.wait()
    wait_until(lambda: not processes_measuring_for(running.pid))


def started(path: Path) -> int:
    """Number of the attempt that is under way; 0 if there is none."""
    if not path.exists():
        return 0
    try:
        with Ledger(path) as ledger:
            return max((record["attempt"] for _, _, record in ledger._started()), default=0)
    except DatasetError:  # being made
        return 0


def processes_measuring_for(parent: int) -> list[int]:
    """Measuring processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"collectors.sweep.measuring_process" in words and str(parent).encode() in words:
            found.append(int(path.parent.name))
    return found
