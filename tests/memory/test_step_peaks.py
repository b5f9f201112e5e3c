"""Peak memory of training steps against the storages that are alive while torch runs them on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from costmodel.capture.training_step import capture_training_step
from costmodel.inductor.training import compile_step
from costmodel.ir import TensorType
from costmodel.kernels.optimizers import optimizer_graph
from costmodel.measurement.peak_memory import StorageWatch
from costmodel.memory.analysis import analyze_memory
from costmodel.memory.state import state_of
from costmodel.memory.step_peaks import compiled_peak_bytes, eager_peak_bytes, optimizer_peak_bytes


def conv_net() -> nn.Module:
    """Convolution, batch norm and ReLU twice, then a classifier."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )


def mlp() -> nn.Module:
    """Layer norm, GELU between two linear layers."""
    return nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))


def mean_of(result: torch.Tensor) -> torch.Tensor:
    """Loss without targets."""
    return result.float().mean()


def measured(module: nn.Module, x: torch.Tensor) -> int:
    """Peak of an eager step on this machine, as CUDA's allocator would count it."""
    watch = StorageWatch()
    watch.watch([*module.parameters(), *module.buffers(), x])
    with watch:
        loss = mean_of(module.train()(x))
        gradients = torch.autograd.grad(loss, list(module.parameters()))
    assert len(gradients) == len(list(module.parameters()))
    return watch.peak_bytes


@pytest.mark.parametrize(("make", "shape"), [(conv_net, (4, 3, 32, 32)), (mlp, (64, 256))])
def test_the_eager_peak_is_that_of_torch(make: Callable[[], nn.Module], shape: tuple[int, ...]):
    x = torch.randn(shape)
    step = capture_training_step(make(), (x,), loss=mean_of, compiles=False)
    found = eager_peak_bytes(step.eager, state_of(make(), (x,)).resident_bytes)
    assert found == pytest.approx(measured(make(), x), rel=0.03)


def test_a_compiled_step_saves_less():
    x = torch.empty(4, 3, 32, 32)
    step = capture_training_step(conv_net(), (x,), loss=mean_of)
    assert step.compiled is not None
    resident = state_of(conv_net(), (x,)).resident_bytes
    both = compile_step(step.compiled.forward, step.compiled.backward, step.compiled.saved)
    compiled = compiled_peak_bytes(*both, step.compiled.saved, resident)
    # two convolutions' results and the second one's input are saved: 3 x images x channels x 30 x 30 x 4 bytes
    assert resident + 3 * 4 * 32 * 900 * 4 <= compiled < eager_peak_bytes(step.eager, resident)


def test_an_optimizer_adds_gradients_and_two_results_that_it_drops():
    graph = optimizer_graph([TensorType("float32", (1024,))], "adam")
    assert optimizer_peak_bytes(graph, 4096, 100_000) == 100_000 + 4096 + 2 * 4096
    assert optimizer_peak_bytes(optimizer_graph([TensorType("float32", (1024,))], "sgd"), 4096, 100_000) == 104_096


def test_a_report_has_the_compiled_peak_where_it_is_asked_for():
    module, x = conv_net(), torch.empty(4, 3, 32, 32, device="meta")
    module[0].requires_grad_(False)
    options = {"hardware": "nvidia-h200", "passes": ("training",), "check": False, "optimizer": "adamw"}
    without, found = (analyze_memory(module, (x,), **options, compiled=asked).training for asked in (False, True))
    assert without is not None
    assert found is not None
    assert without.compiled_peak_bytes is None
    assert found.compiled_peak_bytes is not None
    assert found.compiled_peak_bytes < found.peak_bytes
    assert not module[0].weight.requires_grad
    assert "training, compiled" in str(analyze_memory(module, (x,), **options, compiled=True))
