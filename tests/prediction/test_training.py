"""Predictions of training steps: sums, JSON, requests that cannot be, and what a step must do."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.training_step import capture_training_step
from costmodel.errors import CaptureError, RequestError
from costmodel.inductor.training import step_kernels
from costmodel.prediction.training import capture_step, predict_step
from costmodel.profiles.profile import load_profile
from costmodel.report import Report

SHAPE = (8, 3, 32, 32)


def net() -> nn.Module:
    """Convolution, batch norm and ReLU twice, then a classifier."""
    return nn.Sequential(
        *(nn.Conv2d(3, 128, 3, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU()),
        *(nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)),
    )


@functools.cache
def report(optimizer: str = "momentum", amp: str | None = None) -> Report:
    """Prediction of a step of the net on an H200."""
    x = torch.empty(SHAPE, device="meta")
    options = {"training": True, "optimizer": optimizer, "amp": amp, "hardware": "nvidia-h200", "check": False}
    return costmodel.predict(net(), (x,), **options)


def test_a_step_has_every_mode():
    assert list(report().modes) == ["eager", "default", "reduce-overhead"]
    assert report().batch_size == 8
    for mode in report().modes.values():
        assert mode.low_ms < mode.latency_ms < mode.high_ms
        assert mode.latency_ms >= max(mode.device_ms, 0.0)
    eager, default, replayed = report().modes.values()
    assert default.speedup == pytest.approx(eager.latency_ms / default.latency_ms)
    assert replayed.host_ms < default.host_ms
    assert default.compile_s is not None


def test_passes_add_up_to_the_device_time():
    step = report().training
    assert step is not None
    for mode, passes in step.passes.items():
        total = passes.forward_ms + passes.backward_ms + passes.optimizer_ms
        # each launch in a model takes some more time than alone
        assert total <= report().modes[mode].device_ms < total + 0.5


def test_a_backward_pass_takes_longer_than_its_forward_pass():
    step = report().training
    assert step is not None
    convolution = next(passes for layer, passes in zip(report().layers, step.layers, strict=True) if layer.name == "3")
    assert convolution.eager_backward_us > 1.5 * convolution.eager_forward_us


def test_layers_have_both_passes_in_the_json():
    found = report().to_dict()
    assert found["pass"] == "training"
    assert found["training"]["optimizer"] == "momentum"
    assert found["training"]["loss"] == "cross entropy"
    workspaces = 2 * (32 << 20)  # of cuBLAS on a Hopper GPU, in the forward and in the backward pass
    assert found["training"]["passes"]["eager"]["peak_memory_bytes"] == found["peak_memory_bytes"] + workspaces
    for layer in found["layers"]:
        assert layer["eager_forward_us"] + layer["eager_backward_us"] == pytest.approx(layer["eager_us"] or 0.0)
        assert layer["compiled_forward_us"] + layer["compiled_backward_us"] == pytest.approx(
            layer["compiled_us"] or 0.0
        )
    assert (
        costmodel.predict(net().eval(), (torch.empty(SHAPE),), hardware="nvidia-h200", check=False).to_dict()["pass"]
        == "inference"
    )


def test_adam_takes_longer_than_sgd():
    assert report("adam").modes["eager"].device_ms > report("sgd").modes["eager"].device_ms
    assert report("adam").modes["eager"].host_ms > report("sgd").modes["eager"].host_ms
    peaks = [(report(name).training or report().training).passes["eager"].peak_memory_bytes for name in ("sgd", "adam")]
    assert peaks[0] <= peaks[1]


def test_a_step_does_three_times_the_arithmetic_of_its_forward_pass():
    inference = costmodel.predict(net().eval(), (torch.empty(SHAPE),), hardware="nvidia-h200", check=False)
    assert report().flops == 3 * inference.flops


def test_fused_kernels_of_a_compiled_step():
    step = capture_training_step(net(), (torch.empty(SHAPE, device="meta"),))
    assert step.compiled is not None
    forward, backward = step_kernels(step.compiled.forward, step.compiled.backward, step.compiled.saved)
    library = [kernel.anchor.base for kernel in (*forward, *backward) if kernel.backend != "triton"]
    # a convolution backward call for each gradient: two of the second layer, one of the first
    assert library == ["convolution", "convolution", "addmm", "mm", "mm", *["convolution_backward"] * 3]
    assert len(forward) + len(backward) < len(step.eager.ops)


def test_convolutions_of_the_backward_pass_follow_the_layout_of_the_forward_pass():
    step = capture_training_step(net(), (torch.empty(SHAPE, device="meta"),))
    assert step.compiled is not None
    forward, backward = step_kernels(step.compiled.forward, step.compiled.backward, step.compiled.saved)
    layouts = {kernel.anchor.type.layout for kernel in forward if kernel.anchor.base == "convolution"}
    assert layouts == {"nhwc"}
    calls = [kernel for kernel in backward if kernel.anchor.base == "convolution_backward"]
    assert {value.type.layout for kernel in calls for value in kernel.graph.values if value.name == "a0"} == {"nhwc"}


def test_under_autocast_the_optimizer_keeps_float32():
    found = report(amp="float16")
    assert found.arithmetic == "amp float16"
    assert found.precision == "float32"


class Divided(nn.Module):
    """Two halves, between which torch.compile breaks the graph."""

    def __init__(self) -> None:
        super().__init__()
        layers = list(net())
        self.one, self.two = nn.Sequential(*layers[:3]), nn.Sequential(*layers[3:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x)
        torch._dynamo.graph_break()
        return self.two(x)


def test_intervals_of_a_divided_step_reach_to_the_eager_one():
    found = costmodel.predict(Divided(), (torch.empty(SHAPE, device="meta"),), hardware="nvidia-h200", training=True)
    assert found.graphs.count == 2
    assert any("the step is predicted as one graph, and may gain less" in text for text in found.warnings)
    assert found.verdict == "uncertain"
    for mode in list(found.modes.values())[1:]:
        assert mode.speedup_low <= 1 / 1.2
        assert mode.high_ms > found.modes["eager"].high_ms


class GivenUp(nn.Module):
    """Breaks the graph in a loop, for which torch.compile gives up the whole forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            torch._dynamo.graph_break()
        return x


def test_a_step_that_torch_compile_gives_up_runs_eagerly():
    found = costmodel.predict(GivenUp(), (torch.empty(2, 8, device="meta"),), hardware="nvidia-h200", training=True)
    assert found.graphs.count == 0
    assert list(found.modes) == ["eager"]
    assert "torch.compile gives up every frame; the step runs eagerly" in found.warnings


def test_the_module_is_unchanged():
    module = net().eval()
    weight, mean = module[0].weight.clone(), module[1].running_mean.clone()
    costmodel.predict(module, (torch.zeros(SHAPE),), training=True, hardware="nvidia-h200", check=True)
    assert not module.training
    assert module[0].weight.grad is None
    torch.testing.assert_close(module[0].weight, weight)
    torch.testing.assert_close(module[1].running_mean, mean)


def test_a_step_without_compiled_graphs_is_predicted_eagerly(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> None:
        raise CaptureError("net: AOTAutograd fails on the training step")

    monkeypatch.setattr("costmodel.capture.training_step.compiled_step", fails)
    captured = capture_step(net(), (torch.empty(SHAPE),), "net")
    found = predict_step(captured, load_profile("nvidia-h200"), "sgd")
    assert list(found.modes) == ["eager"]
    assert found.verdict == "uncertain"
    assert "net: AOTAutograd fails on the training step" in found.warnings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"training": True, "optimizer": "lion"}, "optimizer must be one of sgd, momentum, adam, adamw, not 'lion'"),
        ({"optimizer": "sgd"}, "optimizer is of a training step; give training too"),
        ({"loss": torch.mean}, "loss is of a training step"),
        ({"training": True, "capture": "export"}, "a training step is captured by running it"),
        ({"training": True, "hardware": "amd-epyc-2-threads"}, "a training step is predicted for GPUs"),
    ],
)
def test_an_impossible_request_is_one_line(options: dict[str, object], words: str):
    with pytest.raises(RequestError, match=words) as caught:
        costmodel.predict(net().eval(), (torch.empty(SHAPE),), check=False, **options)
    assert "\n" not in str(caught.value)


def test_the_json_obeys_the_schema():
    import jsonschema

    from costmodel.report.json_schema import predict_schema

    jsonschema.validate(report().to_dict(), predict_schema())
