"""The command line: what goes where, and the exit status of everything that can go wrong."""

from __future__ import annotations

import importlib
import json
import os
import pydoc
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import costmodel
from costmodel.cli import main
from costmodel.errors import CaptureError, UnknownHardwareError
from costmodel.ir import Graph
from costmodel.prediction.arithmetic import DEFAULT, Arithmetic
from costmodel.profiles.card import ProfileSummary
from costmodel.report import ModePrediction, Report
from costmodel.report.page import NO_FACTS

ROOT = Path(costmodel.__file__).parent.parent
Predict = Callable[..., Report]


def tiny_report(model: str, hardware: str, inputs: Sequence[torch.Tensor]) -> Report:
    shape = tuple(inputs[0].shape)
    modes = {
        "eager": ModePrediction(6.0, 5.5, 6.5, 5.9, 2.0),
        "default": ModePrediction(4.0, 3.8, 4.2, 3.9, 1.5, 1.5, 1.4, 1.6, 30.0, 15000),
    }
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    layout = "nchw" if inputs[0].is_contiguous() else "nhwc"
    return Report(model, hardware, shape[0], shape, dtype, layout, modes, "default", "compile")


@pytest.fixture
def predicting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Predict], None]:
    """Puts a function in place of the prediction, and one profile in place of those there are."""
    hardware = importlib.import_module("costmodel.profiles.profile")
    predict_module = importlib.import_module("costmodel.prediction.predict")  # before the patches, which it would keep

    def load_profile(name: str) -> SimpleNamespace:
        if name != "nvidia-h200":
            raise UnknownHardwareError(f"unknown hardware {name!r}; there are: nvidia-h200")
        card = {"device": "NVIDIA H200", "units": 3, "scores": {"mape": [1, 2]}, "note": None}
        return SimpleNamespace(card=card, on_cpu=False, environment={}, summary=ProfileSummary(schema=1))

    monkeypatch.setattr(hardware, "list_profiles", lambda: ("nvidia-h200",))
    monkeypatch.setattr(hardware, "resolve_default", lambda: ("nvidia-h200", "no GPU here"))
    monkeypatch.setattr(hardware, "load_profile", load_profile)
    pages = importlib.import_module("costmodel.cli.predict"), importlib.import_module("costmodel.cli.cases")
    monkeypatch.setattr(pages[0], "page_facts", lambda *_: NO_FACTS)  # as the drawing, it needs a whole profile
    monkeypatch.setattr(pages[1], "drawing_of", lambda *_: "")

    def install(predict: Predict) -> None:
        monkeypatch.setattr(predict_module, "predict_captured", predict)

    install(predict_tiny)
    return install


def predict_tiny(
    graph: Graph,
    inputs: Sequence[torch.Tensor],
    *,
    hardware: str | None = None,
    explain: bool = False,
    host: str | None = None,
    shapes: Sequence[Sequence[int]] = (),
    arithmetic: Arithmetic = DEFAULT,
) -> Report:
    assert not explain
    assert arithmetic == DEFAULT
    assert not shapes
    assert host is None
    return tiny_report(graph.name, hardware or "?", inputs)


@pytest.mark.usefixtures("predicting")
class TestPredict:
    def test_results_on_stdout_and_the_rest_on_stderr(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["predict", "alexnet"]) == 0
        out, err = capsys.readouterr()
        assert "\nalexnet on nvidia-h200: input 1x3x224x224, float32, nchw, graph breaks not checked\n" in out
        assert err == "costmodel: hardware nvidia-h200 (no GPU here)\n"

    @pytest.mark.parametrize("options", [["-q"], ["--quiet"], ["--hardware", "nvidia-h200"]])
    def test_says_nothing_when_there_is_nothing_to_say(
        self, options: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["predict", "alexnet", *options]) == 0
        assert capsys.readouterr().err == ""

    def test_options_reach_the_model(self, capsys: pytest.CaptureFixture[str]) -> None:
        options = ["-b", "4", "--img-size", "96", "--precision", "bfloat16", "--channels-last", "--format", "json"]
        assert main(["predict", "alexnet", *options]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["input_shape"] == [4, 3, 96, 96]
        assert (record["precision"], record["layout"], record["batch_size"]) == ("bfloat16", "nhwc", 4)

    def test_several_models_are_a_list(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["predict", "alexnet", "resnet18", "--format", "json"]) == 0
        assert [record["model"] for record in json.loads(capsys.readouterr().out)] == ["alexnet", "resnet18"]

    def test_of_several_models_those_that_can_be_are_predicted(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["predict", "-q", "nope", "alexnet", "nada", "--format", "json"]) == 2
        out, err = capsys.readouterr()
        assert [record["model"] for record in json.loads(out)] == ["alexnet"]
        assert [line.split(":")[2].strip() for line in err.splitlines()] == ["nope", "nada"]

    @pytest.mark.parametrize(
        ("name", "start"), [("csv", "model,"), ("md", "## "), ("html", "<!DOCTYPE"), ("json", "{")]
    )
    def test_formats(self, name: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["predict", "alexnet", "--format", name]) == 0
        assert capsys.readouterr().out.startswith(start)


class TestOutputFile:
    @pytest.fixture(autouse=True)
    def _predicting(self, predicting: Callable[[Predict], None]) -> None:
        self.install = predicting

    def test_is_written_whole_with_ordinary_permissions(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        target = tmp_path / "r.json"
        assert main(["predict", "alexnet", "--format", "json", "-o", str(target)]) == 0
        assert json.loads(target.read_text())["model"] == "alexnet"
        assert capsys.readouterr().out == ""
        (tmp_path / "plain").touch()
        assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "r.json"]

    def test_stays_as_it_was_when_the_prediction_fails(self, tmp_path: Path) -> None:
        target = tmp_path / "r.json"
        target.write_text("old")
        assert main(["predict", "nope", "-o", str(target)]) == 2
        assert target.read_text() == "old"
        assert list(tmp_path.iterdir()) == [target]

    @pytest.mark.parametrize("where", ["absent/r.json", ".", "file/r.json"])
    def test_that_cannot_be_written_is_refused_before_any_work(
        self, tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def predict(*_args: object, **_options: object) -> Report:
            pytest.fail("worked before the path was checked")

        self.install(predict)
        (tmp_path / "file").touch()
        assert main(["predict", "alexnet", "-o", str(tmp_path / where)]) == 2
        err = capsys.readouterr().err
        assert err.startswith("costmodel: error: cannot write ")
        assert err.count("\n") == 1

    def test_may_be_a_device(self) -> None:
        assert main(["predict", "alexnet", "-o", os.devnull]) == 0
        assert not Path(os.devnull).is_file()


@pytest.mark.usefixtures("predicting")
class TestWrongRequests:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["predict", "densnet121"], "did you mean densenet121"),
            (["predict", "alexnet", "--hardware", "gtx"], "unknown hardware 'gtx'; there are: nvidia-h200"),
            (["predict", "alexnet", "-b", "0"], "impossible batch size 0"),
            (["predict", "alexnet", "-b", "many"], "--batch-size"),
            (["predict", "alexnet", "--img-size", "-1"], "impossible image size -1"),
            (["predict", "alexnet", "--img-size", "1000000000"], "impossible image size 1000000000"),
            (["predict", "alexnet", "--precision", "float8"], "--precision"),
            (["predict", "alexnet", "--format", "xml"], "--format"),
            (["predict", "alexnet", "--layers", "some"], "--layers"),
            (["predict", "alexnet", "--no-such-option"], "--no-such-option"),
            (["predict"], "MODEL"),
            (["predict", "alexnet", "--host", "nowhere"], "no host is called 'nowhere'"),
            (["predict", "alexnet", "--host", "0"], "impossible host speed 0"),
            (["predict", "alexnet", "--shapes", "8x3x224x224"], "--shapes needs --explain"),
            (["plan", "alexnet", "-b", "1", "-b", "32"], "--batch-size is given 2 times; give it once"),
            (["memory", "alexnet", "--batch-size=1", "-b32", "-b", "2"], "--batch-size is given 3 times"),
            (["plan", "alexnet", "--format", "md", "--format", "csv"], "--format is given 2 times"),
            (["memory", "alexnet", "--training", "--inference"], "--training is given 2 times"),
            (["predict", "alexnet", "--explain", "--shapes", "8x0"], "impossible shapes '8x0'"),
            (["collect", "host", "--device", "cpu"], "is measured on a GPU only"),
            (["predict", "absent.py:build"], "no file absent.py"),
            (["predict", "absent.pt2"], "no file absent.pt2"),
            (["predikt", "alexnet"], "predikt"),
            (["hardware", "gtx"], "unknown hardware 'gtx'"),
            (["ir", "densnet121"], "did you mean densenet121"),
            (["ir", "alexnet", "--as", "png"], "--as"),
            (["ir", "alexnet", "--as", "svg", "--units"], "--units and --as svg exclude each other"),
            (["ir", "alexnet", "--hardware", "nvidia-h200"], "--hardware is for --as svg"),
            (["ir", "alexnet", "--as", "svg", "--hardware", "gtx"], "unknown hardware 'gtx'"),
        ],
    )
    def test_get_one_line_and_status_2(
        self, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        quiet = ["-q"] if arguments[0] == "predict" else []
        assert main([*arguments, *quiet]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert said in err
        assert err.startswith("costmodel: error: ")
        assert err.count("\n") == 1

    def test_unknown_hardware_is_told_once_for_several_models(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["predict", "alexnet", "resnet18", "--hardware", "gtx"]) == 2
        assert capsys.readouterr().err.count("gtx") == 1

    def test_debug_shows_the_traceback(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["predict", "-q", "nope", "--debug"]) == 2
        err = capsys.readouterr().err
        assert err.startswith("Traceback")
        assert err.splitlines()[-1].startswith("costmodel: error: unknown model 'nope'")

    def test_an_error_of_the_users_file_keeps_its_words(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "net.py").write_text("def build():\n    raise ValueError('mine')\n")
        assert main(["predict", "-q", f"{tmp_path}/net.py:build"]) == 2
        assert "net.py:build raised ValueError: mine" in capsys.readouterr().err


def test_other_ends_of_a_prediction(predicting: Callable[[Predict], None], capsys: pytest.CaptureFixture[str]) -> None:
    def ends_with(error: BaseException) -> tuple[int, str]:
        def predict(*_args: object, **_options: object) -> Report:
            raise error

        predicting(predict)
        status = main(["predict", "-q", "alexnet"])
        return status, capsys.readouterr().err

    assert ends_with(CaptureError("no\nway")) == (2, "costmodel: error: no way\n")
    assert ends_with(KeyboardInterrupt())[0] == 130
    assert ends_with(ZeroDivisionError("oops")) == (
        2,
        "costmodel: error: this is a bug in costmodel: ZeroDivisionError: oops (--debug shows where)\n",
    )


@pytest.mark.usefixtures("predicting")
class TestHardware:
    def test_lists_the_profiles(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["hardware"]) == 0
        assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=1) == ["nvidia-h200", "default: no GPU here"]

    def test_a_field_of_another_shape_is_left_out_of_the_summary(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["hardware", "nvidia-h200"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("nvidia-h200\n")
        assert out.endswith("costmodel hardware nvidia-h200 --format json prints it whole\n")

    def test_as_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["hardware", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["default"] == "nvidia-h200"
        assert main(["hardware", "nvidia-h200", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["units"] == 3


@pytest.mark.parametrize("name", ["nvidia-h200", "amd-epyc-2-threads"])
def test_a_summary_fits_a_screen_and_json_holds_the_whole_card(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", name]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 45
    assert main(["hardware", name, "--format", "json"]) == 0
    card = json.loads(capsys.readouterr().out)
    assert card == json.loads((ROOT / "trained_models" / name / "card.json").read_text())
    assert f"{card['units']['measured']:,}" in out
    latency = next(row for row in card["scores"]["latency"] if row["mode"] == "eager")
    assert f"{latency['median_error']:.1%}" in out


@pytest.mark.parametrize(("form", "start"), [("csv", "fact,value\n"), ("md", "## nvidia"), ("html", "<!DOCTYPE")])
def test_a_summary_in_other_formats(form: str, start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "nvidia-h200", "--format", form]) == 0
    assert capsys.readouterr().out.startswith(start)


@pytest.mark.usefixtures("predicting")
def test_a_flag_and_a_list_may_be_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "alexnet", "-q", "-q"]) == 0
    assert main(["validate", "alexnet", "--mode", "warp", "--mode", "default", "--device", "tpu"]) == 2
    assert "choose cpu, cuda or cuda:N" in capsys.readouterr().err


def test_ir_prints_a_graph_that_can_be_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    from costmodel import ir

    assert main(["ir", "alexnet", "-b", "2"]) == 0
    text = capsys.readouterr().out
    assert ir.parse(text).inputs[0].type.shape == (2, 3, 224, 224)
    assert main(["ir", "alexnet", "--units"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 8  # five convolutions and three matrix products


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("ir", "graph alexnet calls"),
        ("units", "0.000 features.0: conv2d+relu"),
        ("streams", "pipeline\n  features.0: conv2d+relu"),
        ("streamit", "// alexnet: 20 filters; a pass pops 1 and pushes 1 tensors\n"),  # operators but for 3 transposes
        ("dot", 'digraph "alexnet" {\n'),
        ("json", '{\n "schema": 1,\n "name": "alexnet",'),
    ],
)
def test_ir_shows_a_graph_in_every_form(form: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ir", "alexnet", "--as", form]) == 0
    assert capsys.readouterr().out.startswith(begins)


TALKING = """
import torch
from torch import nn
print("loading")
class Talking(nn.Conv2d):
    def forward(self, x):
        print("running")
        return super().forward(x)
def build():
    return Talking(3, 8, 3), torch.empty(1, 3, 16, 16)
"""


@pytest.mark.parametrize("command", ["predict", "plan", "memory", "ir"])
def test_what_a_model_prints_is_no_result(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(TALKING)
    form = ["--as", "json"] if command == "ir" else ["--format", "json"]
    assert main([command, f"{tmp_path}/net.py:build", *form]) == 0
    out, err = capsys.readouterr()
    json.loads(out)
    assert "loading\nrunning\n" in err


def test_ir_draws_units_in_the_colors_of_their_predicted_speedups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faster(_graph: Graph, units: Sequence[object], _profile: object) -> list[float]:
        return [4.0] * len(units)

    monkeypatch.setattr(importlib.import_module("costmodel.prediction.unit_speedups"), "unit_speedups", faster)
    assert main(["ir", "alexnet", "--as", "svg", "--hardware", "nvidia-h200", "-o", str(tmp_path / "a.svg")]) == 0
    text = (tmp_path / "a.svg").read_text()
    assert "alexnet: predicted speedup of each unit on nvidia-h200" in text
    assert text.count(">4.00x</text>") == text.count('<g class="unit">') >= 8
    assert capsys.readouterr().err == ""


POOLS = """
import torch
from torch import nn

class Pools(nn.Module):
    def forward(self, x):
        y = torch.sigmoid(x)
        return torch.cat([y, nn.functional.max_pool2d(y, 3, 1, 1)], 1), y.sum(1)

def build():
    return Pools().eval(), torch.zeros(1, 4, 64, 64)
"""
"""Model of two units on a CPU, and of three on a GPU."""


def test_ir_draws_the_units_of_a_cpu(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(POOLS)
    drawing = tmp_path / "net.svg"
    model = f"{tmp_path}/net.py:build"
    assert main(["ir", model, "--as", "svg", "--hardware", "amd-epyc-2-threads", "-o", str(drawing)]) == 0
    assert drawing.read_text().count('<g class="unit">') == 2


def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    return subprocess.Popen(command, **(pipes | options))  # type: ignore[call-overload, no-any-return]


class TestProcess:
    def test_version(self) -> None:
        process = start("-m", "costmodel", "--version")
        assert process.communicate()[0] == f"costmodel {costmodel.__version__}\n"
        assert process.returncode == 0

    def test_no_arguments_show_the_help(self) -> None:
        process = start("-m", "costmodel")
        out, err = process.communicate()
        assert "predict" in out
        assert err == ""
        assert process.returncode == 2

    def test_a_shell_completes_commands_and_options(self) -> None:
        for words, expected in (("costmodel pre", "predict"), ("costmodel predict --form", "--format")):
            asked = {"_COSTMODEL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
            code = "import sys; sys.argv = ['costmodel']; from costmodel.cli import main; sys.exit(main())"
            process = start("-c", code, env=os.environ | asked)
            assert process.communicate() == (f"{expected}\n", "")
            assert process.returncode == 0

    @pytest.mark.parametrize(
        "command", ["predict", "plan", "validate", "collect", "hardware", "train", "ir", "memory", ""]
    )
    def test_help(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*filter(None, [command]), "--help"]) == 0
        assert f"Usage: costmodel {command}".rstrip() in capsys.readouterr().out

    def test_starting_imports_nothing_heavy(self) -> None:
        code = "import sys, costmodel, costmodel.cli; print(*{name.partition('.')[0] for name in sys.modules})"
        loaded = set(start("-c", code).communicate()[0].split())
        assert not loaded & {"torch", "torchvision", "numpy", "pandas", "pyarrow", "sklearn", "timm", "rich"}

    def test_predicting_does_not_import_what_it_does_not_need(self) -> None:
        code = (
            "import sys; from costmodel.cli import main; main(['predict', '-q', 'alexnet'])\n"
            "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
        )
        loaded = set(start("-c", code).communicate()[1].split("\n")[-2].split())
        assert "torch" in loaded
        assert not loaded & {"sklearn", "pandas", "pyarrow", "timm", "transformers", "joblib"}

    def test_a_closed_pipe_ends_quietly(self) -> None:
        read, write = os.pipe()
        os.close(read)
        process = start("-m", "costmodel", "ir", "resnet18", stdout=write)
        os.close(write)
        assert process.communicate()[1] == ""
        assert process.returncode == 0

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
    def test_a_full_disk_is_told(self) -> None:
        with Path("/dev/full").open("w") as full:
            process = start("-m", "costmodel", "hardware", stdout=full)
            err = process.communicate()[1]
        assert err.startswith("costmodel: error: cannot write to standard output")
        assert err.count("\n") == 1
        assert process.returncode == 2

    @pytest.mark.usefixtures("heeding_interrupts")
    def test_an_interrupt_ends_with_130(self, tmp_path: Path) -> None:
        (tmp_path / "net.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
        process = start("-m", "costmodel", "ir", f"{tmp_path}/net.py:build", stdout=subprocess.DEVNULL)
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate()[1] == ""
        assert process.returncode == 130


class TestPackage:
    def test_public_names_exist(self) -> None:
        assert {"predict", "plan", "apply", "validate", "Report", "__version__"} < set(dir(costmodel))
        for name in dir(costmodel):
            assert getattr(costmodel, name) is not None

    def test_help_fits_a_screen(self) -> None:
        """The summary, the packages and nothing of every class: pydoc shows what `__all__` lists in full."""
        for name in dir(costmodel):
            getattr(costmodel, name)
        lines = pydoc.render_doc(costmodel, renderer=pydoc.plaintext).splitlines()
        assert len(lines) <= 70
        assert all(name in "\n".join(lines[:22]) for name in ("predict(", "plan(", "apply(", "validate(", "tree()"))

    def test_a_submodule_does_not_hide_the_function_of_its_name(self) -> None:
        importlib.import_module("costmodel.prediction.predict")
        assert callable(costmodel.predict)

    def test_an_unknown_name_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="no_such_name"):
            costmodel.no_such_name  # noqa: B018
