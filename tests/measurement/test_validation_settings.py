"""Validation under autocast, matmuls in TF32 and cuDNN's search, on the CPU with the profile of a GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel.errors import RequestError
from costmodel.measurement import validation
from costmodel.measurement.layer_timing import calls_of
from costmodel.measurement.validation_report import render_validation
from costmodel.planning.plan import Plan
from tests.execution.test_plans_under_settings import plan_for

GPU, CPU = "nvidia-h200", "intel-xeon-16-threads"
X = torch.randn(2, 3, 6, 6)
Seen = tuple[str, bool, bool, torch.dtype]


class Probe(nn.Module):
    """A convolution that notes the settings that it runs under, where it really runs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.seen: list[Seen] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        if not y.is_meta:
            self.seen.append((*present(), torch.is_autocast_enabled("cpu"), y.dtype))
        return y


def present() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark


def validated(module: nn.Module, **options: Any) -> validation.Validation:
    return costmodel.validate(module, (X,), **{"hardware": GPU, "modes": (), "seconds": 1e-3, "host": 1.0} | options)


def test_eager_runs_under_exactly_the_settings() -> None:
    probe = Probe().eval()
    result = validated(probe, amp="bfloat16", matmul_precision="high", cudnn_benchmark=True)
    assert set(probe.seen) == {("high", True, True, torch.bfloat16)}
    assert present() == ("highest", False)
    assert result.arithmetic == "amp bfloat16, matmuls in TF32, cudnn.benchmark"
    predicted = costmodel.predict(
        Probe().eval(), (X,), hardware=GPU, host=1.0, amp="bfloat16", matmul_precision="high", cudnn_benchmark=True
    )
    assert result.modes["eager"].predicted_ms == predicted.modes["eager"].latency_ms


def test_defaults_are_set_where_the_process_has_others() -> None:
    probe = Probe().eval()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        validated(probe)
        assert set(probe.seen) == {("highest", False, False, torch.float32)}
        assert present() == ("high", True)
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.benchmark = False


def test_settings_are_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        assert present() == ("medium", True)
        raise ZeroDivisionError

    monkeypatch.setattr(validation, "interleave", fails)
    with pytest.raises(ZeroDivisionError):
        validated(Probe().eval(), matmul_precision="medium", cudnn_benchmark=True)
    assert present() == ("highest", False)


def test_a_compiled_call_is_within_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users write it: the region is around the compiled module, in each call."""
    probe, within = Probe().eval(), []

    def compiled(module: nn.Module, mode: str) -> Any:
        assert mode == "default"
        assert not torch.is_autocast_enabled("cpu")  # torch.compile itself is called outside

        def call(x: torch.Tensor) -> torch.Tensor:
            within.append((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")))
            return module(x)

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    result = validated(probe, modes=("default",), amp="bfloat16")
    assert set(within) == {(True, torch.bfloat16)}
    assert result.modes["default"].output_error == 0.0


def test_a_plan_for_the_same_settings_is_measured() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
    result = validated(net, plan=plan_for(net, "bfloat16"), amp="bfloat16", layers=True)
    assert (result.modes["plan"].note, result.replaced) == ("", ())
    assert result.modes["plan"].output_error < 0.02
    assert [layer.measured_us is not None for layer in result.layers] == [True]


@pytest.mark.parametrize(
    ("amp", "precision", "options", "said"),
    [
        ("bfloat16", "highest", {}, "made for amp bfloat16, and is to be measured under torch's default settings"),
        (None, "high", {"amp": "float16"}, "made for matmuls in TF32, and is to be measured under amp float16"),
        (
            None,
            "highest",
            {"matmul_precision": "high"},
            "made for torch's default settings, and is to be measured under",
        ),
    ],
)
def test_a_plan_for_other_settings_is_refused(amp: str, precision: str, options: dict[str, Any], said: str) -> None:
    probe = Probe().eval()
    plan = Plan("m", "", GPU, "exact", (), "graph", (), {"plan": 1.0}, 0.0, "", amp=amp, matmul_precision=precision)
    with pytest.raises(RequestError, match=said):
        validated(probe, plan=plan, **options)
    assert probe.seen == []  # nothing was measured


@pytest.mark.parametrize("options", [{"amp": "bfloat16"}, {"matmul_precision": "high"}, {"cudnn_benchmark": True}])
def test_settings_of_a_gpu_are_refused_for_the_profile_of_a_cpu(options: dict[str, Any]) -> None:
    probe = Probe().eval()
    with pytest.raises(RequestError, match=f"is predicted for GPUs, and {CPU} is a CPU; leave it out"):
        validated(probe, hardware=CPU, **options)
    assert probe.seen == []


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_every_format_says_the_settings(form: str) -> None:
    result = validation.Validation("m", GPU, "cpu", (1, 3), "float32", {}, arithmetic="amp float16")
    eager = {"eager": validation.ModeResult(1.0, 1.0)}
    assert "amp float16" in render_validation(replace(result, modes=eager), form)
    assert "arithmetic" not in json.loads(render_validation(replace(result, modes=eager, arithmetic=""), "json"))


def test_casts_of_one_operator_are_called_last_argument_first() -> None:
    """Input, weight and bias of the convolution; the order that torch calls them in is the reverse."""
    from costmodel.capture.trace import capture

    graph = capture(nn.Sequential(nn.Conv2d(3, 8, 3)), (X,), amp="float16")
    shapes = [shape for _, shape in calls_of(graph, "float16").values()]
    assert shapes == [(8,), (8, 3, 3, 3), (2, 3, 6, 6), (2, 8, 4, 4)]
    assert [shape for _, shape in calls_of(graph).values()] == [*shapes[2::-1], shapes[3]]
