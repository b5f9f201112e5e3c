"""Sweeps on a Dask cluster of local workers: faults made to happen, environments, addresses.

Workers and their measuring processes are real, and are really killed.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from distributed import Client

import costmodel
import costmodel.profiles.profile
from collectors.processes.environment import environment
from collectors.sweep import dask_cluster
from collectors.sweep.dask_cluster import cluster
from collectors.sweep.dask_place import common_environment, dask_place
from collectors.sweep.executor import _Measuring, sweep
from collectors.sweep.ledger import Ledger
from collectors.sweep.place import Outcome
from collectors.sweep.settings import Progress, Report, SweepSettings
from collectors.workloads.cases import UnitCase, write_cases
from costmodel.cli import main
from costmodel.errors import DatasetError, MeasurementError, RequestError

ROOT = Path(costmodel.__file__).parent.parent
SETTINGS = SweepSettings("cpu", 400.0, hang_seconds=15.0)

FAULTY_OPERATORS = """
import os, signal, sys, time
def once(name):
    marker = os.path.join(os.environ["MARKERS"], name)
    if os.path.exists(marker):
        return False
    open(marker, "w").close()
    return True
def crash(x):
    os.kill(os.getpid(), signal.SIGSEGV)
def crash_once(x):
    if once("crash"):
        os.kill(os.getpid(), signal.SIGKILL)
    return x + 1
def kill_worker(x):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)
def kill_worker_once(x):
    if once("worker"):
        kill_worker(x)
    return x + 1
def hang(x):
    time.sleep(3600)
def slow(x):
    time.sleep(0.03)
    return x + 1
if "collectors.sweep.measuring_process" in sys.orig_argv:
    import torch
    library = torch.library.Library("aten", "FRAGMENT")
    for function in (crash, crash_once, kill_worker, kill_worker_once, hang, slow):
        library.define(f"costmodel_{function.__name__}(Tensor self) -> Tensor")
        library.impl(f"costmodel_{function.__name__}", function, "CPU")
"""

COLLECT = """
import sys
from pathlib import Path
import costmodel.profiles.profile
from collectors.workloads import catalog
from collectors.workloads.cases import read_cases
costmodel.profiles.profile.user_directory = lambda: Path(sys.argv[1])
catalog.unit_cases = lambda *_: list(read_cases(Path(sys.argv[1]) / "cases.jsonl"))
from costmodel.cli import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
"""


def case_of(op: str, size: int = 64) -> UnitCase:
    kind = f"float32[{size}]"
    return UnitCase(f"graph _ {{\n  input %a0: {kind}\n  %0 = {op}(self=%a0) : {kind}\n  return %0\n}}", "aten")


def matmul() -> UnitCase:
    """A case that Inductor compiles without a C++ compiler: it calls ATen."""
    text = "graph _ {\n  input %a0: float32[8,8]\n  %0 = mm(self=%a0, mat2=%a0) : float32[8,8]\n  return %0\n}"
    return UnitCase(text, "inductor")


def distribute(client: Client, cases: list[UnitCase], path: Path, settings: SweepSettings, report: Report) -> None:
    sweep(cases, path, settings, report, partial(dask_place, client))


def ignore(_progress: Progress) -> None:
    pass


def rows_of(path: Path) -> dict[str, dict[str, object]]:
    with Ledger(path) as ledger:
        rows = list(ledger.rows())
    assert len(rows) == len({row["key"] for row in rows})
    return {row["key"]: row for row in rows}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Of a cluster of two workers, where the faulty operators are known."""
    place = tmp_path_factory.mktemp("cluster")
    (place / "sitecustomize.py").write_text(FAULTY_OPERATORS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{place}{os.pathsep}{ROOT}")
        patch.setenv("MARKERS", str(place))
        with cluster("local", "cpu", 2) as client:
            yield client


@pytest.mark.slow
class TestFaults:
    """A fault costs its own case only, which is tried once more."""

    def test_crashes_and_hangs_end_their_own_case_only(self, client: Client, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        crash, hang, once = case_of("costmodel_crash"), case_of("costmodel_hang"), case_of("costmodel_crash_once")
        good = [case_of("relu", size) for size in range(1, 9)]
        seen: list[Progress] = []
        distribute(client, [*good[:4], crash, hang, once, *good[4:]], path, SETTINGS, seen.append)
        rows = rows_of(path)
        assert {rows[case.key]["status"] for case in [*good, once]} <= {"ok", "noisy"}
        crashed, hung = rows[crash.key], rows[hang.key]
        assert (crashed["status"], crashed["error"], crashed["attempt"]) == ("crashed", "killed by SIGSEGV", 2)
        assert crashed["graph"] == crash.graph
        assert (hung["status"], hung["error"]) == ("timeout", "did not end in 15 s, and was killed")
        last = seen[-1]
        assert (last.phase, last.done, last.total, last.units) == ("measuring", 11, 11, 11)
        assert len({str(row["place"]) for row in rows.values()}) == 1  # one host

    def test_a_killed_worker_loses_only_its_case(self, client: Client, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        deadly, once = case_of("costmodel_kill_worker"), case_of("costmodel_kill_worker_once")
        good = [case_of("costmodel_slow", size) for size in range(1, 7)]
        before = set(client.run(os.getpid).values())
        distribute(client, [*good[:2], deadly, once, *good[2:]], path, SETTINGS, ignore)
        rows = rows_of(path)
        assert {rows[case.key]["status"] for case in [*good, once]} <= {"ok", "noisy"}
        lost = rows[deadly.key]
        assert (lost["status"], lost["error"], lost["attempt"]) == ("crashed", "its Dask worker was lost", 2)
        client.wait_for_workers(2, timeout=60)  # others take their place
        after = set(client.run(os.getpid).values())
        assert len(after) == 2
        assert after != before

    def test_a_worker_killed_from_outside_costs_nothing(self, client: Client, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        cases = [case_of("costmodel_slow", size) for size in range(1, 9)]
        client.wait_for_workers(2, timeout=60)
        victims = list(client.run(os.getpid).values())[:1]
        killed = []

        def kill(progress: Progress) -> None:
            if progress.done >= 2 and victims:
                killed.append(progress.done)
                os.kill(victims.pop(), signal.SIGKILL)

        distribute(client, cases, path, SETTINGS, kill)
        assert killed
        assert killed[0] < len(cases)
        rows = rows_of(path)
        assert set(rows) == {case.key for case in cases}
        assert {row["status"] for row in rows.values()} <= {"ok", "noisy"}

    def test_what_has_ended_is_not_measured_again(self, client: Client, tmp_path: Path):
        path = tmp_path / "ledger.sqlite"
        client.wait_for_workers(2, timeout=60)
        distribute(client, [case_of("relu", 1)], path, SETTINGS, ignore)
        first = rows_of(path)
        distribute(client, [case_of("relu", 1), case_of("relu", 2)], path, SETTINGS, ignore)
        assert len(rows_of(path)) == 2
        assert rows_of(path) | first == rows_of(path)

    def test_nothing_is_begun_when_the_time_is_up(self, client: Client, tmp_path: Path):
        client.wait_for_workers(2, timeout=60)
        distribute(client, [case_of("relu", 1)], tmp_path / "ledger.sqlite", SweepSettings("cpu", 0.0), ignore)
        assert not rows_of(tmp_path / "ledger.sqlite")

    def test_hosts_compile_before_anything_is_measured(self, client: Client, tmp_path: Path):
        client.wait_for_workers(2, timeout=60)
        phases: list[tuple[str, int, int]] = []
        cases = [matmul(), case_of("relu", 64)]
        distribute(
            client,
            cases,
            tmp_path / "ledger.sqlite",
            SweepSettings("cpu", 300.0),
            lambda progress: phases.append((progress.phase, progress.done, progress.total)),
        )
        assert phases[0] == ("compiling", 1, 1)
        assert phases[-1] == ("measuring", 2, 2)
        assert {row["status"] for row in rows_of(tmp_path / "ledger.sqlite").values()} <= {"ok", "noisy"}


@pytest.mark.slow
class TestEnvironments:
    """Measurements of two environments are never mixed."""

    def test_a_ledger_of_another_environment_is_refused(self, client: Client, tmp_path: Path):
        client.wait_for_workers(2, timeout=60)
        path = tmp_path / "ledger.sqlite"
        Ledger(path, {**environment("cpu"), "torch": "1.0"}).close()
        with pytest.raises(DatasetError, match=r"begun in another environment: .*torch was 1\.0"):
            distribute(client, [case_of("relu", 1)], path, SETTINGS, ignore)

    def test_workers_that_differ_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(dask_cluster, "_devices", lambda *_: [{"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}])
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        with (
            cluster("local", "cpu", 2) as client,
            pytest.raises(DatasetError, match=r"cannot fill one ledger: threads was \d and is \d; use one ledger"),
        ):
            distribute(client, [case_of("relu", 1)], tmp_path / "ledger.sqlite", SETTINGS, ignore)
        assert not (tmp_path / "ledger.sqlite").exists()


def test_a_result_of_a_late_worker_of_another_environment_is_not_written(tmp_path: Path):
    about = {"environment": {"torch": "2"}, "place": "elsewhere GPU-7"}
    with Ledger(tmp_path / "ledger.sqlite", {"torch": "1"}) as ledger:
        measuring = _Measuring(None, ledger, 1, 0.0, ignore)
        with pytest.raises(DatasetError, match=r"has joined \(elsewhere GPU-7\): torch was 1 and is 2"):
            measuring.note(case_of("relu"), Outcome("ok", {}, about))
        assert not ledger.finished()


def test_two_workers_on_one_gpu_are_refused():
    here = {"environment": {"device": "H"}, "place": "host GPU-1"}
    assert common_environment({"a": here, "b": {**here, "place": "host GPU-2"}}, "cuda") == {"device": "H"}
    assert common_environment({"a": here, "b": here}, "cpu") == {"device": "H"}
    with pytest.raises(RequestError, match="two workers share the GPU host GPU-1; start each with"):
        common_environment({"a": here, "b": here}, "cuda")


class TestCluster:
    """One worker per device, pinned before torch is imported; or the workers of a scheduler."""

    @pytest.mark.slow
    def test_each_local_worker_is_pinned_and_has_not_imported_torch(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
        with cluster("local", "cuda", 2) as client:
            devices = client.run(os.getenv, "CUDA_VISIBLE_DEVICES").values()
            torches = client.run(eval, "'torch' in __import__('sys').modules").values()  # of no module that has it
        assert sorted(devices) == ["4", "5"]
        assert list(torches) == [False, False]

    @pytest.mark.parametrize(("workers", "count"), [(3, 2), (None, 0)])
    def test_more_workers_than_gpus_are_refused(self, workers: int, count: int, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        with pytest.raises(RequestError, match=f"workers need as many GPUs, and there are {count}"):
            dask_cluster._devices("cuda", workers)

    def test_no_workers_are_refused(self):
        with pytest.raises(RequestError, match="impossible number of workers 0; give at least 1"):
            dask_cluster._devices("cpu", 0)

    @pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "no address", "tls://127.0.0.1:1"])
    def test_an_address_where_nobody_answers(self, address: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 1.0)
        with pytest.raises(RequestError, match=f"no Dask scheduler answers at '{address}'"), cluster(address, "cpu", 1):
            pass
        # A client left unclosed closes itself at any moment, and may then wait for ever.
        assert not [it for it in gc.get_objects() if type(it) is Client and it.status == "connecting"]

    def test_an_address_where_something_else_listens(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 1.0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(RequestError, match=f"no Dask scheduler answers at '{address}'"):  # noqa: SIM117
                with cluster(address, "cpu", 1):
                    pass

    @pytest.mark.slow
    def test_an_address_of_a_worker(self, client: Client):
        client.wait_for_workers(1, timeout=60)
        address = next(iter(client.scheduler_info()["workers"]))
        with pytest.raises(RequestError, match=f"at '{address}' is a Dask Worker; give"), cluster(address, "cpu", 1):
            pass

    @pytest.mark.slow
    def test_a_scheduler_without_workers(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(dask_cluster, "_devices", lambda *_: [])
        with cluster("local", "cpu", 1) as local:
            address = local.scheduler.address
            monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 1.0)
            with pytest.raises(MeasurementError, match=f"the scheduler at {address} has no workers; start"):  # noqa: SIM117
                with cluster(address, "cpu", None):
                    pass


@pytest.mark.gpu
@pytest.mark.slow
def test_a_gpu_is_named_by_its_own_number(tmp_path: Path):
    with cluster("local", "cuda", 1) as client:
        distribute(client, [case_of("relu")], tmp_path / "ledger.sqlite", SweepSettings("cuda", 200.0), ignore)
    (row,) = rows_of(tmp_path / "ledger.sqlite").values()
    assert row["status"] in ("ok", "noisy")
    assert str(row["place"]).endswith(f" {torch.cuda.get_device_properties(0).uuid}")


class TestCommand:
    """`costmodel collect --scheduler`."""

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--workers", "2"], "--workers goes with --scheduler local"),
            (["--scheduler", "local", "--workers", "0", "--device", "cpu"], "impossible number of workers 0"),
            (["models", "--scheduler", "local"], "models is measured on one machine by itself"),
            (
                ["--scheduler", "local", "--device", "cuda:1"],
                "with --scheduler the device is cpu or cuda, not 'cuda:1'",
            ),
            (["--scheduler", "tcp://127.0.0.1:1"], "the device is on other machines: name the profile with --hardware"),
        ],
    )
    def test_a_wrong_request_gets_one_line_and_status_2(
        self,
        options: list[str],
        message: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ):
        monkeypatch.setattr(costmodel.profiles.profile, "user_directory", lambda: tmp_path)
        assert main(["collect", "--quick", *options]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"costmodel: error: {message}")
        assert len(err.splitlines()) == 1

    @pytest.mark.slow
    def test_by_address(self, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(costmodel.profiles.profile, "user_directory", lambda: tmp_path)
        monkeypatch.setattr(
            "collectors.workloads.catalog.unit_cases", lambda *_: [case_of("relu", 1), case_of("relu", 2)]
        )
        client.wait_for_workers(2, timeout=60)
        options = ["--scheduler", client.scheduler.address, "--device", "cpu", "--hardware", "far", "--budget", "2m"]
        assert main(["collect", "conv", "-q", *options]) == 0
        assert len(rows_of(tmp_path / "far" / "ledger.sqlite")) == 2

    @pytest.mark.slow
    @pytest.mark.usefixtures("heeding_interrupts")
    def test_interrupted_then_killed_leaves_nobody_behind_and_resumes(self, tmp_path: Path):
        (tmp_path / "sitecustomize.py").write_text(FAULTY_OPERATORS)
        variables = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "MARKERS": str(tmp_path)}
        write_cases(tmp_path / "cases.jsonl", [case_of("costmodel_slow", size) for size in range(1, 9)])
        command = [sys.executable, "-c", COLLECT, str(tmp_path), "collect", "conv", "-q", "--hardware", "far"]
        command += ["--device", "cpu", "--scheduler", "local", "--workers", "2", "--budget", "4m"]
        ledger = tmp_path / "far" / "ledger.sqlite"

        def stopped_after(ended: int, end: Callable[[int], None]) -> tuple[int, str]:
            """Exit status and standard error of the command, when more than `ended` cases have ended."""
            running = subprocess.Popen(
                command, cwd=ROOT, env=variables, start_new_session=True, stderr=subprocess.PIPE, text=True
            )
            try:
                wait_until(lambda: ledger.exists() and len(rows_of(ledger)) > ended)
                assert len(processes_of(tmp_path)) >= 5  # the command, two workers, what they measure with
                end(running.pid)
                errors = running.communicate(timeout=60)[1]
            finally:
                running.kill()
                running.wait()
            wait_until(lambda: not processes_of(tmp_path))
            return running.returncode, errors

        status, errors = stopped_after(0, lambda pid: os.killpg(pid, signal.SIGINT))  # as a terminal does
        assert status == 130
        assert errors == ""
        interrupted = rows_of(ledger)
        status, _ = stopped_after(len(interrupted), lambda pid: os.kill(pid, signal.SIGKILL))
        assert status == -signal.SIGKILL
        killed = rows_of(ledger)
        assert len(interrupted) < len(killed) < 8
        assert subprocess.run(command, cwd=ROOT, env=variables, timeout=200, check=False).returncode == 0
        rows = rows_of(ledger)
        assert len(rows) == 8
        assert rows | killed | interrupted == rows  # nothing was measured twice
        assert {row["status"] for row in rows.values()} <= {"ok", "noisy"}


def wait_until(condition: Callable[[], object], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


def processes_of(markers: Path) -> list[int]:
    """Of a command with these MARKERS, and whatever it has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"MARKERS={markers}".encode() in variables:
            found.append(int(path.parent.name))
    return found
