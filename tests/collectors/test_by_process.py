"""Whole models in several processes: whose turn it is, what a process that ends says, and a run on the CPU."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from collectors.whole_models import by_process
from collectors.whole_models.by_process import Settings
from collectors.whole_models.collect import count_records
from costmodel.calibration.models_file import read_measured

CASE = {"model": "resnet18", "batch_size": 1, "precision": "float32", "layout": "nchw", "img_size": 32}


def case(model: str) -> dict[str, Any]:
    return CASE | {"model": model}


def test_all_cases_are_measured_once_before_any_is_again():
    cases = [case(name) for name in "abc"]
    done = Counter({"a@1 float32 nchw 32px": 1, "b@1 float32 nchw 32px": 2})
    blocks = by_process._blocks(cases, done, Settings(times=2, held=2))
    assert [[one["model"] for one in block] for block in blocks] == [["c"], ["a", "c"]]


def test_a_torn_last_line_does_not_count(tmp_path: Path):
    out = tmp_path / "models.jsonl"
    assert count_records(out) == Counter()
    out.write_text(json.dumps(CASE) + "\n" + json.dumps(CASE) + "\n" + json.dumps(CASE)[:20])
    assert count_records(out) == Counter({"resnet18@1 float32 nchw 32px": 2})


def test_a_process_waits_for_its_turn_and_probes_between_rounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(by_process, "ROUNDS", 2)
    monkeypatch.setattr(by_process, "LATENCY_SECONDS", 0.0)
    here, there = multiprocessing.Pipe()
    thread = Thread(target=by_process.hold, args=(CASE, "cpu", None, True, there))
    thread.start()
    assert here.poll(60)
    assert here.recv() is None
    assert not here.poll(0.3)  # nobody has said that it is its turn
    here.send("go")
    record = here.recv()
    thread.join()
    assert len(record["probes_us"]) == 3
    assert [len(found) for found in record["latency_us"]["eager"]] == [5, 5]
    assert record["input_shape"] == [1, 3, 32, 32]


def test_what_a_model_raises_is_its_record():
    here, there = multiprocessing.Pipe()
    by_process.hold(case("resnet81"), "cpu", None, False, there)
    assert here.recv()["error"].startswith("UnknownModelError: unknown model 'resnet81'")


def test_a_disturbed_host_leaves_no_record_and_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    launches = {"a": 7.0, "b": 8.5, "c": 8.1, "d": 9.0, "e": 6.0}
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(
        by_process, "_measured", lambda block, *_: [one | {"probe_us": launches[one["model"]]} for one in block]
    )
    out = tmp_path / "models.jsonl"
    settings = Settings(devices=("cpu",), times=1, held=2, launch_us=8.0)
    by_process.collect([case(name) for name in launches], out, settings)
    assert [json.loads(line)["model"] for line in out.read_text().splitlines()] == ["a"]  # half a block ends nothing
    said = capsys.readouterr().out
    assert "2 from a@1 float32 nchw 32px on in 0 s, 1 of them not kept" in said
    assert "stopped: a launch takes more than 8.0 us on this host" in said
    by_process.collect([case(name) for name in launches], out, replace(settings, launch_us=None))
    assert count_records(out).total() == len(launches)


def test_a_process_that_ends_without_a_word():
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=os._exit, args=(7,))
    process.start()
    there.close()
    said = by_process._Held(CASE, process, here).answer(30.0)
    assert said == {**CASE, "error": "its process ended with status 7"}


def test_a_process_that_takes_too_long_is_killed():
    context = multiprocessing.get_context("spawn")
    here, _there = context.Pipe()
    process = context.Process(target=time.sleep, args=(60,))
    process.start()
    assert by_process._Held(CASE, process, here).answer(0.1) == {**CASE, "error": "timeout"}
    process.join(10)
    assert process.exitcode == -9


def test_a_run_on_the_cpu_goes_on_where_it_stopped(tmp_path: Path):
    (tmp_path / "cases.json").write_text(json.dumps([CASE, case("resnet81")]))
    command = [
        sys.executable,
        "-m",
        "collectors.whole_models.by_process",
        "cases.json",
        "models.jsonl",
        "--devices",
        "cpu",
        "--times",
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(by_process.__file__).parents[2])}
    for times in ("1", "1", "2"):
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
    found, _ = read_measured(tmp_path / "models.jsonl", slow=True)
    assert [one.model for one in found] == ["resnet18"] * 2
    tpu = [*command, "0", "--device", "tpu"]
    wrong = subprocess.run(tpu, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert wrong.returncode == 2
    assert b"unknown device 'tpu'" in wrong.stderr
