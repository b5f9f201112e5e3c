"""`--training` of `predict` and `validate`: JSON, explanation, and wrong requests in one line with exit status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costmodel.cli import main
from costmodel.cli.validate import _step
from costmodel.errors import RequestError

NET = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), (torch.empty(2, 3, 16, 16),)

def frozen():
    module, inputs = net()
    return module.requires_grad_(False), inputs
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    """File of two small models."""
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path / 'net.py'}:net"


def test_json_of_a_step(model: str, capsys: pytest.CaptureFixture[str]):
    command = ["predict", model, "--training", "--optimizer", "adamw", "--hardware", "nvidia-h200", "--format", "json"]
    assert main([*command, "--explain", "--no-check"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pass"] == "training"
    assert found["training"]["optimizer"] == "adamw"
    assert found["training"]["loss"] == "sum of the means of all results"
    assert set(found["training"]["passes"]) == {"eager", "default", "reduce-overhead"}
    assert [reason["topic"] for reason in found["explanation"]] == ["step", "mode", "mode", "mode"]
    assert "forward" in found["explanation"][1]["why"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--optimizer", "sgd"], "optimizer is of a training step; give training too"),
        (["--training", "--optimizer", "lion"], "unknown optimizer 'lion'; choose one of sgd, momentum, adam, adamw"),
        (["--training", "--capture", "fx"], "--training captures a step by running it"),
        (["--training", "--hardware", "amd-epyc-2-threads"], "a training step is predicted for GPUs"),
    ],
)
def test_wrong_requests(model: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", model, *arguments, "-q"]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert said in out.err
    assert out.err.count("\n") == 1


def test_a_model_that_does_not_train(model: str, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", model.replace(":net", ":frozen"), "--training", "-q"]) == 2
    assert "Sequential has no parameter that trains" in capsys.readouterr().err


def test_options_of_a_measured_step():
    assert _step(False, None, None) is None
    assert _step(True, "adam", None) == {"optimizer": "adam"}
    for given, said in (
        ((True, None, Path("plan.json")), "a plan is of a forward pass"),
        ((False, "sgd", None), "optimizer is of a training step"),
    ):
        with pytest.raises(RequestError, match=said):
            _step(*given)
