"""Training mode: named where code reads it, once, by the command line and by `predict`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import costmodel
from costmodel import zoo
from costmodel.cli import main
from costmodel.errors import CaptureError
from costmodel.zoo.training_mode import AS_INFERENCE, AS_IT_IS, training_warning

HERE = "nvidia-h200"
X = torch.empty(2, 3, 8, 8)


class Drops(nn.Module):
    """Reads the mode in a method that its forward pass calls."""

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if self.training else x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(x)


@pytest.mark.parametrize(
    "module",
    [
        *(nn.BatchNorm2d(3), nn.BatchNorm2d(3, momentum=None), nn.BatchNorm2d(3, track_running_stats=False)),
        *(nn.Dropout(), nn.MultiheadAttention(4, 2), nn.LSTM(3, 3), nn.RReLU(), Drops()),
        parametrizations.spectral_norm(nn.Linear(3, 3)),
        nn.utils.spectral_norm(nn.Linear(3, 3)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_a_module_whose_code_reads_the_mode_is_named(module: nn.Module) -> None:
    whole = nn.Sequential(nn.Conv2d(3, 3, 1), module)
    assert training_warning(whole.train(), AS_IT_IS) == f"the model is in training mode; {AS_IT_IS}"
    whole.eval()
    assert training_warning(whole, AS_IT_IS) == ""
    module.train()
    assert training_warning(whole, AS_INFERENCE).startswith("1")


@pytest.mark.parametrize("module", [nn.Conv2d(3, 3, 1), nn.Sequential(nn.ReLU(), nn.LayerNorm(3)), nn.GELU()])
def test_a_module_that_does_not_is_not(module: nn.Module) -> None:
    assert training_warning(module.train(), AS_IT_IS) == ""


def test_a_part_is_named_with_the_number_of_the_others() -> None:
    module = nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3), nn.Dropout(), nn.BatchNorm2d(3)).eval()
    for part in module[1:]:
        part.train()
    assert training_warning(module, AS_IT_IS) == f"1 and 2 more modules are in training mode; {AS_IT_IS}"


@pytest.mark.parametrize(("called", "is_named"), [("", True), (".eval()", False)])
def test_the_command_line_predicts_inference_and_says_so(
    called: str, is_named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "from torch import nn\ndef build(): return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())"
    (tmp_path / "net.py").write_text(text + called)
    assert main(["predict", f"{tmp_path}/net.py:build", "-q", "--format", "json", "--hardware", HERE]) == 0
    said = [text for text in json.loads(capsys.readouterr().out)["warnings"] if "training mode" in text]
    assert said == [f"the model is in training mode; {AS_INFERENCE}"] * is_named
    assert main(["ir", f"{tmp_path}/net.py:build"]) == 0
    assert ("the model is in training mode" in capsys.readouterr().err) == is_named


def test_a_training_step_needs_no_evaluation_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "from torch import nn\ndef build(): return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())"
    (tmp_path / "net.py").write_text(text)
    spec = f"{tmp_path}/net.py:build"
    assert main(["predict", spec, "-q", "--training", "--format", "json", "--hardware", HERE]) == 0
    said = json.loads(capsys.readouterr().out)["warnings"]
    said += costmodel.predict(spec, hardware=HERE, training=True).warnings
    assert not any("training mode" in text for text in said)


def test_models_of_libraries_are_in_evaluation_mode_as_ever() -> None:
    assert zoo.load("alexnet").warnings == ()


def test_predict_says_so_where_nothing_is_updated_and_refuses_the_rest() -> None:
    without_statistics = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))
    (said,) = (text for text in costmodel.predict(without_statistics, (X,), hardware=HERE).warnings if "mode" in text)
    assert said == f"the model is in training mode; {AS_IT_IS}"
    quiet = costmodel.predict(without_statistics.eval(), (X,), hardware=HERE)
    assert not any("training mode" in text for text in quiet.warnings)
    with pytest.raises(CaptureError, match=r"in training mode; call \.eval\(\)"):
        costmodel.predict(nn.Sequential(nn.BatchNorm2d(3)), (X,), hardware=HERE)


def test_batch_norm_without_statistics_uses_those_of_the_batch_in_evaluation_mode() -> None:
    from costmodel.capture.trace import capture

    (op,) = capture(nn.BatchNorm2d(3, track_running_stats=False).eval(), (X,)).ops
    assert dict(op.args)["training"] is True
