"""`costmodel collect`: refused requests, a whole collection on the CPU, an interruption; and whole models."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import costmodel
import costmodel.profiles.profile
from collectors.sweep import sweep
from collectors.sweep.export import export
from collectors.sweep.ledger import Ledger
from collectors.sweep.settings import Progress
from collectors.whole_models import collect, compilation, records, shared_process, timing
from collectors.whole_models.built_model import BuiltModel, build
from collectors.whole_models.collect import WholeModelSettings
from collectors.whole_models.shared_process import SharedProcessSettings
from collectors.whole_models.timing import measure_modes
from collectors.workloads import catalog
from collectors.workloads.model_cases import case_key
from costmodel.cli import main
from costmodel.cli.collect_checks import check_name, parse_duration
from costmodel.cli.sweep_progress import describe, sweep_progress
from costmodel.errors import CostmodelError, DatasetError, MeasurementError, RequestError
from costmodel.training.dataset import read_frame

ROOT = Path(costmodel.__file__).parent.parent
NO_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU")

COLLECT = """
import sys
from pathlib import Path
import costmodel.profiles.profile
costmodel.profiles.profile.user_directory = lambda: Path(sys.argv[1])
from costmodel.cli import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(costmodel.profiles.profile, "user_directory", lambda: tmp_path / "home")
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("20m", 1200.0), ("1h", 3600.0), ("1.5h", 5400.0), (" 2m ", 120.0)]
)
def test_a_budget_is_a_number_with_a_unit(text: str, seconds: float):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "-1m", "0s", "1d", "1h30m", "nan s", "1e3s", "inf", "9999999h", "1 m"])
def test_other_budgets_are_refused(text: str):
    with pytest.raises(RequestError, match="impossible budget"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "soon"], "impossible budget 'soon'; give a time up to 30 days, such as 90s, 20m or 1h"),
        (["cnov"], "unknown workload 'cnov'; choose of conv, matmul, layer, tf32, bfloat16, casts, backward, models"),
        (["--device", "tpu"], "unknown device 'tpu'; choose cpu, cuda or cuda:N"),
        (["--device", "cuda:99"], "there is no cuda:99 here"),
        (["--device", "cpu", "--hardware", "../x"], "impossible name '../x' for a profile"),
        (["--device", "cpu", "--threads", "99999"], "--threads 99999 are more than the "),
        (["--device", "cpu", "--hardware", ""], "impossible name '' for a profile"),
        (["--device", "cpu", "--hardware", "nvidia-h200"], "the profile nvidia-h200 is shipped and cannot be changed"),
    ],
)
def test_a_wrong_request_gets_one_line_and_status_2(
    options: list[str], message: str, home: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["collect", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"costmodel: error: {message}")
    assert len(err.splitlines()) == 1
    assert not home.exists()


def test_a_home_that_cannot_be_written_to_is_refused(home: Path, capsys: pytest.CaptureFixture[str]):
    home.write_text("a file where a directory should be")
    assert main(["collect", "--quick", "--device", "cpu"]) == 2
    assert "cannot make" in capsys.readouterr().err


def test_a_ledger_of_another_environment_is_refused(home: Path, capsys: pytest.CaptureFixture[str]):
    (home / "mine").mkdir(parents=True)
    Ledger(home / "mine" / "ledger.sqlite", {"torch": "1.0"}).close()
    assert main(["collect", "matmul", "--quick", "--device", "cpu", "--hardware", "mine", "-q"]) == 2
    assert "begun in another environment" in capsys.readouterr().err


def test_the_default_name_is_the_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(costmodel.profiles.profile, "shipped_directory", lambda: tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "NVIDIA H200 (SXM)")
    assert check_name(None, "cpu") == "cpu"
    assert check_name(None, "cuda") == "nvidia-h200-sxm"
    (tmp_path / "cpu").mkdir()
    assert check_name(None, "cpu") == "cpu-local"


@pytest.mark.slow
@NO_COMPILER
def test_a_quick_collection_ends_in_a_dataset(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """The kernels of a convolution unit, two of them compiled; then again, when nothing is left to do."""
    monkeypatch.setattr(catalog, "QUICK_CASES", 3)  # one unit
    command = ["collect", "conv", "--quick", "--device", "cpu", "--hardware", "mine", "--budget", "400s"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    ledger = home / "mine" / "ledger.sqlite"
    lines = out.splitlines()
    assert lines[0].startswith("6 units, measured in 6 cases: ")
    assert lines[1:] == [f"ledger: {ledger}", "next: costmodel train --hardware mine"]
    assert err == "costmodel: choosing what to measure\n"
    log = home / "mine" / "ledger.log"
    written = log.stat().st_mtime_ns
    assert main([*command, "-q"]) == 0
    assert capsys.readouterr().out == out
    assert log.stat().st_mtime_ns == written  # no process was started
    assert export(ledger, home / "mine" / "units.parquet") == 6
    frame, about = read_frame(home / "mine" / "units.parquet")
    assert set(frame["status"]) <= {"ok", "noisy"}
    assert frame["runner"].value_counts().to_dict() == {"aten": 4, "inductor": 2}
    assert sum("convolution" in graph for graph in frame["graph"]) == 2  # in both layouts, as eager and compiled run it
    assert (frame["device_us_p50"] > 0).all()
    assert (frame.loc[frame["runner"] == "inductor", "relative_error"] < 0.02).all()
    assert about["environment"]["device"] == "cpu"
    assert not [path for path in (home / "mine").iterdir() if path.name.startswith(".")]  # nothing half-written


@pytest.mark.slow
def test_the_layers_of_a_model_are_harvested_in_parallel(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(catalog, "QUICK_MODELS", ("alexnet",))
    cases = catalog.unit_cases(["layer"], "cpu", quick=True, end=time.monotonic() + 100)
    assert {case.source for case in cases} == {"alexnet@1 float32"}
    assert {case.runner for case in cases} == {"aten", "inductor"}


@pytest.mark.slow
@pytest.mark.usefixtures("heeding_interrupts")
def test_an_interruption_ends_with_130_and_leaves_the_ledger_whole(tmp_path: Path):
    command = [sys.executable, "-c", COLLECT, str(tmp_path), "collect", "matmul", "--device", "cpu"]
    command += ["--hardware", "mine", "--budget", "60s"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    ledger = tmp_path / "mine" / "ledger.sqlite"
    end = time.monotonic() + 50
    while time.monotonic() < end and not (ledger.exists() and ended(ledger)):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "costmodel: interrupted; measurements so far are kept, and the same command resumes"
    assert ended(ledger)
    with Ledger(ledger) as whole:
        assert whole._started() == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch):
    progress = Progress("measuring", done=30, total=90, seconds=60.0, units=20)
    for stream, quiet, shown in ((Terminal(), False, True), (Terminal(), True, False), (io.StringIO(), False, False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with sweep_progress(quiet) as report:
            report(progress)
        assert ("measuring 30/90 cases, 20 units/min, 02:00 left" in stream.getvalue()) == shown
        assert bool(stream.getvalue()) == shown


def test_progress_in_rounds_shows_the_time_left_of_the_budget():
    progress = Progress("measuring", done=30, total=90, seconds=60.0, units=20, round=2, budget_left=754.0)
    assert describe(progress) == "round 2: measuring 30/90 cases, 20 units/min, 12:34 left"


def test_a_budget_too_small_for_anything_measures_nothing(home: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["collect", "matmul", "--quick", "--device", "cpu", "--hardware", "mine", "--budget", "0.001s"]) == 2
    assert capsys.readouterr().err.endswith("costmodel: error: nothing was measured; give a larger --budget\n")


def ended(path: Path) -> int:
    try:
        with Ledger(path) as ledger:
            return len(ledger.finished())
    except DatasetError:  # not made yet
        return 0


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        torch._dynamo.graph_break()
        return torch.relu(x)


CASE: dict[str, Any] = {"model": "resnet18", "batch_size": 1, "precision": "float32", "layout": "nchw", "img_size": 32}


@pytest.mark.slow
@NO_COMPILER
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_a_model_is_timed_in_turn_and_a_graph_break_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timing, "build", lambda _case, _device: BuiltModel(Tiny().eval(), (torch.randn(4, 8),)))
    record = measure_modes(CASE, "cpu")
    assert set(record["latency_us"]) == {"eager/default", "default"}
    assert all(len(rounds) == 3 for rounds in record["latency_us"].values())
    assert record["default_error"] < 1e-5
    assert not any(name.endswith(("_device_us", "_host_us")) for name in record)  # on a CPU, both are the latency
    assert record["graph_breaks"] == {"default": 1}
    assert "unstable" not in record
    assert record["disturbed"] == []
    assert "probe_us" not in record  # a CPU is its own host
    assert record["input_shape"] == [4, 8]


def test_modes_are_those_wanted_and_a_cpu_has_one():
    assert list(compilation.modes_on("cuda:1")) == ["default", "reduce-overhead"]
    assert compilation.modes_on("cuda", ("reduce-overhead",)) == {"reduce-overhead": "reduce-overhead"}
    assert compilation.modes_on("cpu", ("reduce-overhead",)) == {"default": None}


@pytest.mark.parametrize("name", ["resnet18", "tv:resnet18"])
def test_a_model_is_built_with_real_weights_as_the_case_says(name: str):
    model = build({**CASE, "model": name, "layout": "nhwc", "precision": "bfloat16"}, "cpu")
    module, (x,) = model.module, model.arguments
    assert x.shape == (1, 3, 32, 32)
    assert x.is_contiguous(memory_format=torch.channels_last)
    weights = list(module.parameters())
    assert {weight.dtype for weight in weights} == {torch.bfloat16}
    assert weights[0].is_contiguous(memory_format=torch.channels_last)
    assert not module.training
    with torch.no_grad():
        assert torch.isfinite(module(x)).all()


@pytest.mark.parametrize("model", ["hf:vit", "model.pt2", "package.module:build"])
def test_models_of_other_sources_are_refused(model: str):
    with pytest.raises(CostmodelError):
        build({**CASE, "model": model, "img_size": None}, "cpu")


def test_a_model_of_a_file_is_built_by_its_callable_with_named_inputs(tmp_path: Path):
    text = "import torch\ndef net(batch): return torch.nn.Linear(4, 2), {'input': torch.full((batch, 4), 3.0)}\n"
    (tmp_path / "own.py").write_text(text)
    model = build({**CASE, "model": f"{tmp_path}/own.py:net", "batch_size": 5}, "cpu")
    assert model.input_shape() == [5, 4]
    assert torch.equal(model.keywords["input"], torch.full((5, 4), 3.0))
    assert model.eager().shape == (5, 2)
    with pytest.raises(RequestError, match="there is no such file"):
        build({**CASE, "model": f"{tmp_path}/none.py:net"}, "cpu")


def test_keys_say_what_was_measured():
    assert case_key(CASE) == "resnet18@1 float32 nchw 32px"
    assert case_key({**CASE, "img_size": None, "batch_size": 8}) == "resnet18@8 float32 nchw"


def test_a_model_that_returns_no_tensor_is_refused():
    model = BuiltModel(Tiny().eval(), (torch.randn(4, 8),))
    with pytest.raises(MeasurementError, match="returns no tensor"):
        compilation.compile_mode(model, "default", "cpu", [], {})


def test_records_of_another_environment_are_refused(tmp_path: Path):
    out = tmp_path / "models.jsonl"
    records.check_environment(out, {"torch": "2.11"})
    records.append(out, CASE)
    records.check_environment(out, {"torch": "2.11"})
    with pytest.raises(DatasetError, match=r"torch was 2\.11 and is 2\.13"):
        records.check_environment(out, {"torch": "2.13"})
    (tmp_path / "models.env.json").unlink()
    with pytest.raises(DatasetError, match="its environment is unknown"):
        records.check_environment(out, {"torch": "2.11"})
    (tmp_path / "models.env.json").write_text("{")
    with pytest.raises(DatasetError, match="not an environment"):
        records.check_environment(out, {"torch": "2.11"})


def test_a_torn_last_line_is_passed_over_and_ended(tmp_path: Path):
    out = tmp_path / "models.jsonl"
    out.write_text(json.dumps(CASE) + "\n" + json.dumps({**CASE, "batch_size": 2})[:30])
    assert records.done_keys(out) == {case_key(CASE)}
    records.append(out, {**CASE, "batch_size": 3})
    assert records.done_keys(out) == {case_key(CASE), case_key({**CASE, "batch_size": 3})}
    assert records.done_keys(tmp_path / "none") == set()


def test_a_model_that_fails_is_recorded_and_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_args: object, **_options: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(shared_process, "_fill_cache", lambda todo, *_: {case_key(case): {} for case in todo})
    monkeypatch.setattr(shared_process, "measure_modes", fail)
    out = tmp_path / "models.jsonl"
    for _ in range(2):
        collect.collect([CASE], out, WholeModelSettings(("cpu",), 30.0))
    (line,) = out.read_text().splitlines()
    assert json.loads(line)["error"] == "RuntimeError: no such luck"


def test_of_the_first_cases_the_compile_time_with_an_empty_cache_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cases = [{**CASE, "batch_size": batch} for batch in (1, 2, 3)]
    monkeypatch.setattr(
        shared_process, "_fill_cache", lambda todo, *_: {case_key(case): {"default": 9.0} for case in todo}
    )
    monkeypatch.setattr(shared_process, "measure_modes", lambda case, *_args, **_options: {**case, "latency_us": {}})
    monkeypatch.setattr(shared_process, "cold_compile", lambda case, _device: 4.0 + case["batch_size"])
    settings = WholeModelSettings(("cpu",), 30.0, shared=SharedProcessSettings(cold=2))
    collect.collect(cases, tmp_path / "models.jsonl", settings)
    rows = [json.loads(line) for line in (tmp_path / "models.jsonl").read_text().splitlines()]
    assert [row.get("cold_compile_s") for row in rows] == [5.0, 6.0, None]
    assert [row["contended_compile_s"] for row in rows] == [{"default": 9.0}] * 3
    assert len({row["session"] for row in rows}) == 1


def test_the_sweep_as_a_program_refuses_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["sweep", str(tmp_path / "none"), str(tmp_path / "ledger.sqlite")])
    with pytest.raises(SystemExit) as ended_with:
        sweep.main()
    assert ended_with.value.code == 2
    assert "cannot be read" in capsys.readouterr().err.splitlines()[-1]
