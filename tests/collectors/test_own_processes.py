"""Whole models in processes of their own: order, turns, every end of a process as a record, and runs on the CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collectors.whole_models import collect as collecting
from collectors.whole_models import own_processes
from collectors.whole_models.case_process import Job, loads
from collectors.whole_models.collect import WholeModelSettings, collect
from collectors.whole_models.compile_times import compile_times
from collectors.whole_models.own_processes import (
    OwnProcessSettings,
    blocks,
    interleaved,
    latencies,
    prepare,
)
from collectors.whole_models.records import count_records
from collectors.whole_models.timing import RoundSettings
from costmodel.calibration.models_file import read_measured

ROOT = Path(collecting.__file__).parents[2]
CASE = {"model": "resnet18", "batch_size": 1, "precision": "float32", "layout": "nchw", "img_size": 32}
NO_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU")
ENDS = """
import os, time, torch
def late(batch): time.sleep(1000)
def killed(batch): os.kill(os.getpid(), 11)
def wrong(batch): raise ValueError("no such weights")
def short(batch): raise MemoryError("out of memory")
class Slow(torch.nn.Module):
    def forward(self, x):
        if os.path.exists(os.environ["MARKER"]): time.sleep(1000)
        return x + 1
def slow(batch): return Slow(), torch.ones(batch, 3)
def broken(batch):
    class Broken(torch.nn.Module):
        def forward(self, x):
            torch._dynamo.graph_break()
            return x + 1
    return Broken(), torch.ones(batch, 3)
"""


def case(model: str, batch_size: int = 1) -> dict[str, Any]:
    return CASE | {"model": model, "batch_size": batch_size}


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    file = tmp_path / "ends.py"
    file.write_text(ENDS)
    return file


def test_all_cases_are_measured_once_before_any_is_again():
    cases = [case(name) for name in "abc"]
    done = {"a@1 float32 nchw 32px": 1, "b@1 float32 nchw 32px": 2}
    found = blocks(cases, done, OwnProcessSettings(times=2, held=2))
    assert [[one["model"] for one in block] for block in found] == [["c"], ["a", "c"]]


def test_a_cut_run_has_done_the_same_share_of_each_group():
    many, few = [case("many", index) for index in range(8)], [case("few", index) for index in range(4)]
    half = interleaved([many, few])[:6]
    assert [one["model"] for one in half].count("many") == 4
    assert [one["batch_size"] for one in half if one["model"] == "few"] == [0, 1]


def test_a_torn_last_line_does_not_count_and_a_failure_only_if_it_is_not_retried(tmp_path: Path):
    out = tmp_path / "models.jsonl"
    assert not count_records(out)
    failed = case("alexnet") | {"error": "timeout"}
    lines = [json.dumps(CASE), json.dumps(CASE), json.dumps(failed), json.dumps(CASE)[:20]]
    out.write_text("\n".join(lines))
    assert count_records(out) == {"resnet18@1 float32 nchw 32px": 2, "alexnet@1 float32 nchw 32px": 1}
    assert +count_records(out, retry=True) == {"resnet18@1 float32 nchw 32px": 2}


def test_a_job_survives_its_text():
    job = Job(CASE, "cpu", ("default",), "compile", RoundSettings(3, 0.5, samples=True))
    assert loads(job.dumps()) == job


def test_every_end_of_a_process_is_a_record(ends: Path):
    cases = [case(f"{ends}:{name}") for name in ("killed", "wrong", "short")]
    settings = OwnProcessSettings(processes=3, held=3, ready_s=60.0, measure_s=5.0)
    killed, wrong, short = latencies(cases, {}, ["cpu"], (), settings, time.monotonic() + 120.0)
    assert killed["status"] == "killed by SIGSEGV"
    assert killed["error"].startswith("its process ended while preparing: killed by SIGSEGV")
    assert (wrong["status"], wrong["error"]) == ("error", "ValueError: no such weights")
    assert (short["status"], short["error"]) == ("oom", "MemoryError: out of memory")


def test_a_process_that_is_not_ready_in_time_is_given_up(ends: Path):
    settings = OwnProcessSettings(ready_s=1.0)
    (late,) = latencies([case(f"{ends}:late")], {}, ["cpu"], (), settings, time.monotonic() + 120.0)
    assert (late["status"], late["error"]) == ("timeout", "deadline exceeded while preparing")


def test_a_held_process_waits_for_its_turn_which_has_a_deadline(
    ends: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    marker = tmp_path / "marker"
    monkeypatch.setenv("MARKER", str(marker))
    settings = OwnProcessSettings(ready_s=60.0, rounds=RoundSettings(2, 0.0))
    job = Job(case(f"{ends}:slow"), "cpu", (), "latency", settings.rounds)
    first, second = prepare([(job, {}), (job, {})], tmp_path, settings, time.monotonic() + 60.0)
    assert first.ready
    assert first._line(0.3) is None  # nobody has said that it is its turn
    first.start_turn()
    record = first.finish_turn(30.0)
    assert len(record["probes_us"]) == 3
    assert [len(found) for found in record["latency_us"]["eager"]] == [5, 5]
    assert record["input_shape"] == [1, 3]
    marker.touch()
    second.start_turn()
    assert second.finish_turn(1.0)["error"] == "deadline exceeded while measuring"
    assert second.process.returncode == -9


def test_nothing_begins_after_the_end():
    assert not list(latencies([CASE], {}, ["cpu"], (), OwnProcessSettings(), time.monotonic()))


def test_a_disturbed_host_leaves_no_record_and_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    launches = {"a": 7.0, "b": 8.5, "c": 8.1, "d": 9.0, "e": 6.0}
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(
        own_processes, "_measure_block", lambda block, *_: [one | {"probe_us": launches[one["model"]]} for one in block]
    )
    out = tmp_path / "models.jsonl"
    own = OwnProcessSettings(held=2, launch_us=8.0)
    settings = WholeModelSettings(devices=("cpu",), modes=(), own=own)
    collect([case(name) for name in launches], out, settings)
    assert [json.loads(line)["model"] for line in out.read_text().splitlines()] == ["a"]  # half a block ends nothing
    assert "stopped: a launch takes more than 8.0 us on this host" in capsys.readouterr().out
    collect([case(name) for name in launches], out, replace(settings, own=replace(own, launch_us=None)))
    assert count_records(out).total() == len(launches)


@pytest.mark.slow
@NO_COMPILER
def test_compile_times_are_cold_then_warm_and_breaks_are_named(ends: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")  # else an empty cache begins with 30 s of trying g++ out
    cases = [case(f"{ends}:broken"), case(f"{ends}:wrong")]
    settings = OwnProcessSettings(processes=2, held=4, ready_s=90.0, measure_s=90.0)
    found, failed = compile_times(cases, {}, ["cpu"], ("default",), settings, time.monotonic() + 300.0)
    assert (found["mode"], found["input_shape"]) == ("default", [1, 3])
    assert found["cold_compile_s"] > found["warm"]["calls_s"][0] > 0
    assert found["cold"]["breaks"][0]["where"].endswith("ends.py:15")
    assert found["cold"]["errors"] == [0.0]
    assert found["cold"]["cudagraph_skips"] == 0
    assert (failed["mode"], failed["status"]) == ("default", "error")


def test_a_run_on_the_cpu_resumes_where_it_stopped(tmp_path: Path):
    (tmp_path / "cases.json").write_text(json.dumps([CASE, case("resnet81")]))
    command = [sys.executable, "-m", "collectors.whole_models.collect", "cases.json", "models.jsonl"]
    command += ["--device", "cpu", "--modes", "--times"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for times in ("1", "2"):
        ran = subprocess.run(
            [*command, times], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in (tmp_path / "models.jsonl").read_text().splitlines()]
    assert [(row["model"], row["process"]) for row in rows] == [
        ("resnet18", 1),
        ("resnet81", 1),
        ("resnet18", 2),
        ("resnet81", 2),
    ]
    assert rows[1]["error"].startswith("UnknownModelError: unknown model 'resnet81'")
    found, _ = read_measured(tmp_path / "models.jsonl", slow=True)
    assert [one.model for one in found] == ["resnet18"] * 2
    wrong = subprocess.run(
        [*command, "1", "--device", "tpu"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert wrong.returncode == 2
    assert b"unknown device 'tpu'" in wrong.stderr
