"""Model code that prints, forks or exits in its process: the result is whole, by itself, and where it was asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.cli import main

ROOT = Path(__file__).parents[2]

NOISY = """
import atexit, ctypes, os, signal, subprocess, sys, threading
from torch import nn

libc = ctypes.CDLL(None)
passes = []

def noise(how):
    print("NOISE print", how)
    os.write(1, f"NOISE write {how}\\n".encode())
    libc.puts(f"NOISE puts {how}".encode())  # stays in C's buffer until it is flushed
    os.system(f"echo NOISE shell {how}")
    with open("/dev/stdout", "a") as file:
        file.write(f"NOISE device {how}\\n")

def last():
    noise("at exit")
    libc.fflush(None)
    os._exit(9)

def later():
    threading.main_thread().join()
    noise("in a thread")

class Net(nn.Conv2d):
    def forward(self, x):
        if not passes:
            noise("in the pass")
            os.close(1)
        passes.append(x)
        return super().forward(x)

def build():
    atexit.register(last)
    atexit.register(lambda: 1 / 0)
    threading.Thread(target=later).start()
    subprocess.run(["echo", "NOISE child"], check=True)
    noise("in the factory")
    if os.fork() == 0 or libc.fork() == 0:
        return Net(3, 8, 3)  # goes on as the command would
    os.wait(), os.wait()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.chdir("/")
    sys.__stdout__.write("NOISE original\\n")
    sys.stdout.close()
    sys.stderr = sys.stdout = None
    return Net(3, 8, 3)
"""

ENDING = """
import os, signal
from torch import nn
class Silent(Exception):
    def __str__(self): raise self
class Sly(str):
    def split(self, *rest): raise SystemExit(3)
class Slippery(BaseException):
    def __str__(self): return Sly("in the pass")
class Leaving(nn.Conv2d):
    def train(self, mode=True): raise SystemExit(0)
class Silently(nn.Conv2d):
    def forward(self, x): raise Silent
class Slipping(nn.Conv2d):
    def forward(self, x): raise Slippery
class Shy(nn.Conv2d):
    def forward(self, x):
        self.gone = True
        return super().forward(x)
    def __getattribute__(self, name):
        if name in ("named_parameters", "named_modules", "named_children", "modules", "state_dict"): raise SystemExit(0)
        return super().__getattribute__(name)
class Posing:
    @property
    def __class__(self): raise SystemExit(0)
class Piping(nn.Conv2d):
    def forward(self, x): raise BrokenPipeError
def leaving(): return Leaving(3, 8, 3)
def silent(): raise Silent
def silently(): return Silently(3, 8, 3)
def slipping(): return Slipping(3, 8, 3)
def shy(): return Shy(3, 8, 3)
def exits(): raise SystemExit(0)
def posing(): return Posing()
def pipe(): return Piping(3, 8, 3)
def interrupts():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return nn.Conv2d(3, 8, 3)
def wanders():
    os.chdir("/")
    return nn.Conv2d(3, 8, 3)
def nested():
    net = nn.Conv2d(3, 8, 3)
    for _ in range(200): net = nn.Sequential(net)
    return net
def endless():
    def again(x): return again(x)
    return again(1)
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "ending.py").write_text(ENDING)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


class TestStandardOutput:
    def test_holds_the_result_alone_and_files_are_where_they_were_asked_for(self, models: Path):
        options = ["--training", "--save-plan", "plan.json", "--format", "json", "-q"]
        done = run("-m", "costmodel", "memory", "noisy.py:build", *options)
        assert json.loads(done.stdout)["model"] == "noisy.py:build", done.stderr
        assert done.returncode == 0, done.stderr
        assert json.loads((models / "plan.json").read_text())["model"] == "noisy.py:build"
        assert {path.name for path in models.iterdir()} - {"__pycache__"} == {"ending.py", "noisy.py", "plan.json"}
        for how in ("in the factory", "in the pass", "in a thread", "at exit"):
            for way in ("write", "puts", "shell", "device"):
                assert f"NOISE {way} {how}\n" in done.stderr
        assert "NOISE child\n" in done.stderr
        assert "costmodel: error" not in done.stderr

    @pytest.mark.slow
    def test_of_several_processes_holds_the_result_alone(self, models: Path):
        specs = ["ending.py:wanders", "noisy.py:build", "ending.py:exits", "ending.py:nested"]
        done = run("-m", "costmodel", "predict", *specs, "--jobs", "2", "-q", "--format", "json", "-o", "all.json")
        assert done.stdout == ""
        kept = json.loads((models / "all.json").read_text())
        assert [report["model"] for report in kept] == [specs[0], specs[1], specs[3]]
        said = [line for line in done.stderr.splitlines() if line.startswith("costmodel")]
        assert len(said) == 1
        assert said[0].startswith("costmodel: error: ending.py:exits: ending.py:exits raised SystemExit: 0")
        assert done.returncode == 2


@pytest.mark.usefixtures("models")
class TestEnds:
    @pytest.mark.parametrize("command", ["predict", "memory"])
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("leaving", "SystemExit: 0"),
            ("silent", "ending.py:silent raised Silent: (its message cannot be shown)"),
            ("silently", "the forward pass failed in Silently: Silent: (its message cannot be shown)"),
            ("slipping", "the forward pass failed in Slipping: Slippery: in the pass"),
            ("shy", "SystemExit: 0"),
            ("exits", "ending.py:exits raised SystemExit: 0"),
            ("posing", "the result of ending.py:posing raised SystemExit: 0"),
            ("pipe", "the forward pass failed in Piping: BrokenPipeError"),
            ("endless", "RecursionError: maximum recursion depth exceeded"),
        ],
    )
    def test_that_code_may_try_get_one_line(
        self, name: str, said: str, command: str, capsys: pytest.CaptureFixture[str]
    ):
        assert main([command, f"ending.py:{name}", "-q"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("costmodel: error: ")
        assert said in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize("command", ["predict", "plan", "memory", "ir"])
    def test_two_hundred_nested_modules_are_no_reason_to_end(self, command: str, capsys: pytest.CaptureFixture[str]):
        assert main([command, "ending.py:nested", "-q"]) == 0
        assert capsys.readouterr().out

    def test_what_code_changes_in_the_process_does_not_last(self, models: Path, capfd: pytest.CaptureFixture[str]):
        depth, handler = sys.getrecursionlimit(), signal.getsignal(signal.SIGINT)
        specs = ["ending.py:interrupts", "ending.py:wanders", "ending.py:nested"]
        assert main(["predict", *specs, "-q", "--format", "json", "-o", "all.json"]) == 0
        assert [report["model"] for report in json.loads((models / "all.json").read_text())] == specs
        assert Path.cwd() == models
        assert (sys.getrecursionlimit(), signal.getsignal(signal.SIGINT)) == (depth, handler)
        os.write(1, b"descriptor 1 is back\n")
        assert capfd.readouterr() == ("descriptor 1 is back\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="commands are guarded on Linux only")
def test_nothing_is_left_of_a_result_that_did_not_come(models: Path):
    with (models / "ending.py").open("a") as file:
        file.write("class Dying(nn.Conv2d):\n    def forward(self, x): os._exit(0)\ndef dying(): return Dying(3, 8, 3)")
    done = run("-m", "costmodel", "plan", "ending.py:dying", "-q", "-o", "plan.json")
    assert done.stderr == "costmodel: error: the process ended before the command was done: exit status 0\n"
    assert (done.returncode, done.stdout) == (2, "")
    assert {path.name for path in models.iterdir()} == {"ending.py", "noisy.py"}
