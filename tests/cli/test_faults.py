"""The command line where it is not the request that is wrong: closed streams, models that die, files as targets.

What a model's code does to standard output, and to the process, is in test_cli_user_code.py.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from costmodel.cli import main, run_only, streams
from costmodel.errors import RequestError
from costmodel.planning.plan import Plan

ROOT = Path(__file__).parents[2]
MODELS = """
import os, threading
from torch import nn
class Ended(BaseException): pass
class Unruly(nn.Module):
    def train(self, mode=True): raise ValueError("no evaluation")
    def forward(self, x): return x + 1
class Ends(nn.Module):
    def forward(self, x): raise Ended("in the pass")
class Deep(nn.Module):
    def forward(self, x):
        result = x + 1
        for _ in range(3000): result = [result]
        return result
def small(): return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
def dies(): os._exit(7)
def ended(): raise Ended("in the factory")
unruly, ends, deep = Unruly, Ends, Deep
locked = nn.Linear(2, 2)
locked.lock = threading.Lock()
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "costmodel", *arguments]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unruly", "ValueError: no evaluation"),
        ("ends", "the forward pass failed in Ends: Ended: in the pass"),
        ("ended", "net.py:ended raised Ended: in the factory"),
        ("locked", "net.py:locked cannot be copied: TypeError"),
    ],
)
@pytest.mark.usefixtures("models")
def test_whatever_a_users_code_raises_is_told_in_one_line(name: str, said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", f"net.py:{name}", "-q"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("costmodel: error: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("models")
def test_a_result_may_be_nested_however_deep(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", "net.py:deep", "-q", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["modes"]["eager"]["latency_ms"] > 0


@pytest.mark.slow
def test_a_model_that_ends_its_process_does_not_take_others_down(models: Path):
    specs = ["net.py:small", "net.py:dies", "net.py:small"]
    done = subprocess.run(
        command("predict", *specs, "--jobs", "2", "-q", "--format", "json"),
        cwd=models,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2
    assert [report["model"] for report in json.loads(done.stdout)] == ["net.py:small", "net.py:small"]
    assert done.stderr == "costmodel: error: net.py:dies: its process died or hung\n"


@pytest.mark.slow
def test_what_is_meant_for_a_closed_standard_error_is_lost(models: Path):
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", *command("predict", "net.py:small", "net.py:none", "--format", "json")],
        cwd=models,
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2
    assert [report["model"] for report in json.loads(done.stdout)] == ["net.py:small"]


@pytest.mark.usefixtures("models")
class TestPlanFiles:
    def test_a_link_goes_on_pointing_where_it_did(self, models: Path):
        (models / "real.json").write_text("older")
        (models / "link.json").symlink_to("real.json")
        (models / "link.json.tmp").write_text("precious")
        assert main(["plan", "net.py:small", "-q", "-o", "link.json"]) == 0
        assert (models / "link.json").is_symlink()
        assert Plan.load(models / "real.json").model == "net.py:small"  # build time and all
        assert (models / "link.json.tmp").read_text() == "precious"

    @pytest.mark.parametrize(
        ("form", "start"), [("html", "<!DOCTYPE"), ("csv", "region,"), ("md", "## plan"), ("table", "plan for")]
    )
    def test_a_format_that_is_given_is_that_of_the_file(
        self, form: str, start: str, models: Path, capsys: pytest.CaptureFixture[str]
    ):
        assert main(["plan", "net.py:small", "-q", "--format", form, "-o", "plan.txt"]) == 0
        assert (models / "plan.txt").read_text().startswith(start)
        assert capsys.readouterr().out == ""

    def test_json_in_a_file_is_the_plan(self, models: Path, capsys: pytest.CaptureFixture[str]):
        assert main(["plan", "net.py:small", "-q", "--format", "json", "-o", "plan.json"]) == 0
        assert Plan.load(models / "plan.json").model == "net.py:small"
        assert capsys.readouterr().out == ""

    def test_a_device_is_written_to(self, capsys: pytest.CaptureFixture[str]):
        assert main(["plan", "net.py:small", "-q", "-o", os.devnull]) == 0
        assert not Path(os.devnull).is_file()
        assert "net.py:small" in capsys.readouterr().out

    def test_a_path_that_cannot_be_written_is_refused_before_any_work(self, capsys: pytest.CaptureFixture[str]):
        assert main(["plan", "net.py:none", "-q", "-o", "absent/plan.json"]) == 2
        assert "cannot write absent/plan.json" in capsys.readouterr().err

    def test_two_results_do_not_go_to_one_file(self, models: Path, capsys: pytest.CaptureFixture[str]):
        options = ["--training", "--save-plan", "one.json", "-o", "one.json"]
        assert main(["memory", "net.py:small", "-q", *options]) == 2
        assert "both the report and the plan would go to one.json" in capsys.readouterr().err
        assert not (models / "one.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seconds", "nan"], "--seconds must be above 0, not nan"),
        (["--max-error", "nan"], "--max-error must be a percentage, not nan"),
        (["--max-error", "-1"], "--max-error must be a percentage, not -1.0"),
        (["--no-plan", "--plan", "plan.json"], "--plan and --no-plan exclude each other"),
    ],
)
def test_numbers_that_are_none_and_options_that_exclude_each_other(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["validate", "resnet18", "-q", *options]) == 2
    assert said in capsys.readouterr().err


class TestValidate:
    @pytest.fixture
    def measured(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Types of devices that a measurement was asked for, instead of measuring."""
        asked: list[str] = []

        def compare(module: nn.Module, *_: object, **__: object) -> None:
            asked.append(next(module.parameters()).device.type)
            raise RequestError("not measured")

        monkeypatch.setattr("costmodel.measurement.validation.validate", compare)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        return asked

    def test_a_cpu_in_place_of_a_gpu_has_to_be_asked_for(
        self, measured: list[str], models: Path, capsys: pytest.CaptureFixture[str]
    ):
        assert main(["validate", "net.py:small", "--hardware", "nvidia-h200"]) == 2
        assert "torch sees no GPU here; give --device cpu" in capsys.readouterr().err
        assert measured == []

    @pytest.mark.parametrize(
        "options", [["--hardware", "nvidia-h200", "--device", "cpu"], ["--hardware", "amd-epyc-2-threads"]]
    )
    def test_how_long_it_takes_is_said_first(
        self, options: list[str], measured: list[str], models: Path, capsys: pytest.CaptureFixture[str]
    ):
        assert main(["validate", "net.py:small", "--no-plan", "--seconds", "2", "--mode", "default", *options]) == 2
        said = "measuring eager, default on cpu: compiling takes some minutes, and ten for a large model, for each mode"
        assert f"{said}; then 28 s of rounds" in capsys.readouterr().err  # 7 rounds of 2 modes of 2 s
        assert measured == ["cpu"]


@pytest.mark.parametrize(
    ("arguments", "enabled"),
    [
        (["predict", "net.py:telling", "-q"], False),
        (["predict", "net.py:telling", "net.py:small", "-q"], True),
        (["plan", "net.py:telling", "--no-check", "-q"], False),
        (["ir", "net.py:telling"], True),
    ],
)
def test_garbage_is_looked_for_but_in_a_process_for_one_prediction_or_plan(
    arguments: list[str],
    enabled: bool,
    models: Path,
    capsys: pytest.CaptureFixture[str],
):
    with (models / "net.py").open("a") as file:
        file.write("import gc\ndef telling():\n    print('enabled:', gc.isenabled())\n    return small()\n")
    try:
        assert run_only(arguments) == 0
    finally:
        gc.enable()
        streams.put_back()
    assert f"enabled: {enabled}\n" in capsys.readouterr().err


@pytest.mark.usefixtures("models")
def test_compiling_a_small_model_takes_seconds_too(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", "net.py:small", "-q", "--format", "json"]) == 0
    mode = json.loads(capsys.readouterr().out)["modes"]["default"]
    assert mode["compile_s"] > mode["compile_s_low"] > 1.0
    assert mode["compile_s"] > mode["compile_warm_s"] > mode["compile_warm_s_low"] > 0.1
