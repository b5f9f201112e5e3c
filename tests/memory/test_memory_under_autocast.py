"""Memory of inference under autocast: casts of weights stay until the pass ends, as on real tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.trace import capture
from costmodel.cli import main
from costmodel.errors import RequestError
from costmodel.measurement.peak_memory import inference_peak_bytes
from costmodel.memory.peaks import inference_peak
from costmodel.memory.state import state_of

GPU, CPU = "nvidia-h200", "intel-xeon-16-threads"


def two_layers(frozen: bool = False) -> nn.Module:
    net = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.ReLU(), nn.Linear(1024, 1024, bias=False)).eval()
    return net.requires_grad_(not frozen)


class InRegion(nn.Module):
    """A module in a region of the CPU."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.net(x)


def peak(net: nn.Module, amp: str | None) -> int:
    x = torch.empty(1, 1024, device="meta")
    options: dict[str, Any] = {"hardware": GPU, "passes": ("inference",), "check": False}
    found = costmodel.analyze_memory(net, (x,), amp=amp, **options).inference
    assert found is not None
    return found.peak_bytes - found.workspace_bytes


def test_both_casts_live_at_the_peak() -> None:
    """Weights of 4 MiB and their casts of 2 MiB; the input of 4 KiB; operand and result of the last matmul, 2 KiB each.

    Without autocast the operand and result have 4 KiB each. A frozen weight's cast is not kept: one lives at a time.
    """
    weights, x = 2 * 4 * 2**20, 4096
    assert peak(two_layers(), None) == weights + x + 2 * 4096
    assert peak(two_layers(), "float16") == weights + 2 * 2 * 2**20 + x + 2 * 2048
    assert peak(two_layers(frozen=True), "float16") == weights + 2 * 2**20 + x + 2 * 2048


@pytest.mark.parametrize("frozen", [False, True])
def test_it_is_that_of_real_tensors(frozen: bool) -> None:
    """Torch keeps the same casts in a region of the CPU."""
    net, x = two_layers(frozen), torch.randn(64, 1024)
    graph = capture(net, (x,), amp="bfloat16", fast_path=False)
    predicted = inference_peak(graph, state_of(net, (x,)).resident_bytes).nbytes
    assert predicted == inference_peak_bytes(InRegion(net), (x,))


def test_the_report_says_it() -> None:
    x = torch.empty(1, 1024, device="meta")
    report = costmodel.analyze_memory(
        two_layers(), (x,), hardware=GPU, passes=("inference",), amp="float16", check=False
    )
    assert "input 1x1024, float32, amp float16, nchw" in str(report)
    assert report.to_dict()["arithmetic"] == "amp float16"


@pytest.mark.parametrize("options", [{}, {"passes": ("training",)}, {"passes": ("inference",), "hardware": CPU}])
def test_what_is_not_predicted_is_refused(options: dict[str, Any]) -> None:
    x = torch.empty(1, 1024, device="meta")
    with pytest.raises(
        RequestError, match="memory under amp float16 is predicted for inference on GPUs; give --inference"
    ):
        costmodel.analyze_memory(two_layers(), (x,), **{"hardware": GPU, "amp": "float16"} | options)


def test_the_command_refuses_a_training_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "alexnet", "-q", "--amp", "float16", "--hardware", GPU]) == 2
    assert capsys.readouterr().err.count("\n") == 1
