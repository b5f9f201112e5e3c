"""Settings of precision: refusals, what they change in a prediction, and what --explain and warnings say of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel.cli import main, options
from costmodel.errors import RequestError
from costmodel.prediction.arithmetic import AMP, DEFAULT, MATMUL_PRECISIONS, Arithmetic
from costmodel.profiles.profile import load_profile

WIDE = (torch.empty(4096, 2048, device="meta"),)
GPU, CPU = "nvidia-h200", "intel-xeon-16-threads"


def wide_net() -> nn.Module:
    return nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).eval()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"amp": "float16", "precision": "bfloat16"}, "amp float16 casts a float32 model"),
        ({"matmul_precision": "high", "precision": "float16"}, "matmul precision high is of float32 matmuls"),
        ({"amp": "float16", "hardware": CPU}, "amp is predicted for GPUs"),
        ({"matmul_precision": "medium", "hardware": CPU}, "matmul precision is predicted for GPUs"),
        ({"cudnn_benchmark": True, "hardware": CPU}, "cudnn benchmark is predicted for GPUs"),
        ({"amp": "float32"}, "amp"),
        ({"matmul_precision": "tf32"}, "matmul_precision"),
    ],
)
def test_contradictions_and_impossible_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        costmodel.predict("resnet18", **options)


@pytest.mark.parametrize(
    "line",
    [
        "--amp float16 --precision float16",
        "--matmul-precision high --precision bfloat16",
        f"--amp bfloat16 --hardware {CPU}",
        f"--cudnn-benchmark --hardware {CPU}",
        "--amp int8",
        "--matmul-precision lowest",
    ],
)
def test_one_line_and_exit_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "resnet18", "-q", *line.split()]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"costmodel: error: [^\n]+\n", error)


def test_words_of_a_headline() -> None:
    assert DEFAULT.words == ""
    assert Arithmetic("float16", "high", True).words == "amp float16, matmuls in TF32, cudnn.benchmark"


def test_settings_leave_the_profile_as_it_was() -> None:
    profile = load_profile(GPU)
    predictor = profile.predictor
    other = Arithmetic(matmul_precision="medium").on(profile)
    assert (other.device.tf32, profile.device.tf32) == (True, False)
    assert other.predictor is predictor  # not read again


def test_matmuls_in_tf32() -> None:
    """Not faster than in float16, not slower than in float32; medium is as high."""
    plain, high, medium = (
        costmodel.predict(wide_net(), WIDE, hardware=GPU, matmul_precision=setting)
        for setting in ("highest", "high", "medium")
    )
    half = costmodel.predict(wide_net().half(), (WIDE[0].half(),), hardware=GPU)
    for mode in ("eager", "default", "reduce-overhead"):
        times = [report.modes[mode].device_ms for report in (half, high, plain)]
        assert times == sorted(times)
    assert high.modes == medium.modes
    assert plain.modes["eager"].device_ms > 1.5 * high.modes["eager"].device_ms
    assert high.arithmetic == high.to_dict()["arithmetic"] == "matmuls in TF32"
    assert "arithmetic" not in plain.to_dict()


def test_unmeasured_tf32_is_said_and_counts_as_extrapolated() -> None:
    measured = "gemm_tf32" in load_profile(GPU).predictor.groups
    report = costmodel.predict(wide_net(), WIDE, hardware=GPU, matmul_precision="high")
    assert any("matmuls in TF32 were not measured" in line for line in report.warnings) is not measured
    assert (report.extrapolated_share > 0.9) is not measured


def test_cudnn_benchmark_widens_intervals_downwards_only() -> None:
    net, x = nn.Sequential(nn.Conv2d(64, 64, 3), nn.ReLU()).eval(), torch.empty(32, 64, 56, 56, device="meta")
    plain, tried = (costmodel.predict(net, (x,), hardware=GPU, cudnn_benchmark=on) for on in (False, True))
    assert plain.modes["eager"].latency_ms == tried.modes["eager"].latency_ms
    assert (plain.extrapolated_share, tried.extrapolated_share > 0.5) == (0.0, True)
    assert any(line.startswith("cudnn.benchmark: convolutions count with") for line in tried.warnings)


class Casting(nn.Module):
    """A model that enters autocast itself."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            return self.net(x)


def test_amp_is_faster_and_costs_its_casts() -> None:
    """Against float16 weights it adds one cast of the input and four of parameters to each eager pass."""
    amp = costmodel.predict(wide_net(), WIDE, hardware=GPU, amp="float16")
    half = costmodel.predict(wide_net().half(), (WIDE[0].half(),), hardware=GPU)
    plain = costmodel.predict(wide_net(), WIDE, hardware=GPU)
    assert len(amp.kernels["eager"]) == len(half.kernels["eager"]) + 5
    assert half.modes["eager"].device_ms < amp.modes["eager"].device_ms < plain.modes["eager"].device_ms
    assert amp.precision == "float32"
    assert "float32, amp float16, one graph" in str(amp)


def test_a_model_that_enters_autocast_is_predicted_as_under_amp() -> None:
    own = costmodel.predict(Casting(wide_net()), WIDE, hardware=GPU, check=False)
    amp = costmodel.predict(wide_net(), WIDE, hardware=GPU, amp="float16", check=False)
    assert own.modes["reduce-overhead"].device_ms == pytest.approx(amp.modes["reduce-overhead"].device_ms, rel=2e-3)
    assert [kernel.name for kernel in own.kernels["eager"]] == [kernel.name for kernel in amp.kernels["eager"]]


def test_explain_says_when_tf32_pays() -> None:
    report = costmodel.predict(wide_net(), WIDE, hardware=GPU, explain=True)
    (reason,) = [item for item in report.explanation if item.where == "matmuls in TF32"]
    fast = costmodel.predict(wide_net(), WIDE, hardware=GPU, matmul_precision="high").modes["eager"].latency_ms
    assert f"eager {report.modes['eager'].latency_ms:.3g} -> {fast:.3g} ms" in reason.why
    assert "10 bits of mantissa" in reason.why


@pytest.mark.parametrize("settings", [{}, {"matmul_precision": "high"}])
def test_explain_says_when_autocast_pays(settings: dict[str, Any]) -> None:
    """Beside the settings that are given, which stay."""
    report, fast = (
        costmodel.predict(wide_net(), WIDE, hardware=GPU, explain=True, amp=amp, **settings)
        for amp in (None, "float16")
    )
    (reason,) = [item for item in report.explanation if item.where == "autocast in float16"]
    before, after = (one.modes["reduce-overhead"].latency_ms for one in (report, fast))
    assert before > 1.2 * after
    assert f"reduce-overhead {before:.3g} -> {after:.3g} ms" in reason.why
    assert "keep 10 bits of mantissa, a relative error of 5e-4 each, and overflow above 65,504" in reason.why


def test_explain_says_nothing_of_autocast_that_gains_little() -> None:
    """A convolution too small to fill the GPU, whose casts cost more than it saves."""
    net, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), torch.empty(1, 3, 32, 32, device="meta")
    report = costmodel.predict(net, (x,), hardware=GPU, explain=True)
    assert not [item for item in report.explanation if item.topic == "setting"]


@pytest.mark.parametrize("options", [{"amp": "float16", "matmul_precision": "high"}, {"amp": "bfloat16"}])
def test_explain_is_silent_where_it_does_not(options: dict[str, Any]) -> None:
    report = costmodel.predict(wide_net(), WIDE, hardware=GPU, explain=True, **options)
    assert not [item for item in report.explanation if item.topic == "setting"]


def test_the_command_offers_the_same_precisions() -> None:
    assert tuple(options.Amp) == AMP
    assert tuple(options.MatmulPrecision) == MATMUL_PRECISIONS
