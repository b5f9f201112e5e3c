"""Kernels of a report: their totals are those of the layers, and their places those of the queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from costmodel.ir import Graph, parse
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.kernel_predictions import kernel_name
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles.profile import Profile, load_profile
from costmodel.report import Report


@pytest.fixture(scope="module")
def report(graph_of: Callable[[str], Graph], h200: Profile) -> Report:
    return predict_graph(graph_of("resnet18"), h200)


@pytest.mark.parametrize(
    ("mode", "field"), [("eager", "eager_us"), ("default", "compiled_us"), ("reduce-overhead", "compiled_us")]
)
def test_kernels_and_layers_add_up_to_the_same(report: Report, mode: str, field: str) -> None:
    by_kernel = sum(kernel.device_us for kernel in report.kernels[mode])
    assert by_kernel == pytest.approx(sum(getattr(layer, field) or 0.0 for layer in report.layers))
    assert by_kernel == pytest.approx(getattr(report.tree(), field))
    names = {layer.name for layer in report.layers}
    assert {name for kernel in report.kernels[mode] for name in kernel.layers} <= names


@pytest.mark.parametrize("mode", ["eager", "default", "reduce-overhead"])
def test_the_device_runs_one_kernel_after_another_once_it_is_launched(report: Report, mode: str) -> None:
    free = 0.0
    for kernel in report.kernels[mode]:
        assert kernel.device_start_us >= free
        assert kernel.device_start_us >= kernel.host_start_us + kernel.host_us - 1e-6
        assert kernel.low_us <= kernel.device_us <= kernel.high_us
        assert kernel.bound in ("compute", "memory", "launch")
        free = kernel.device_start_us + kernel.device_us
    assert free == pytest.approx(report.modes[mode].latency_ms * 1e3, rel=0.15)  # residuals correct the latency


def test_a_cuda_graph_is_launched_once(report: Report) -> None:
    first, *others = report.kernels["reduce-overhead"]
    assert first.host_us > 0
    assert not any(kernel.host_us for kernel in others)


def test_figures_of_the_header(report: Report) -> None:
    assert report.parameters is None or report.parameters == 11_689_512  # torchvision's documentation
    assert report.flops == pytest.approx(2 * 1.81e9, rel=0.01)  # its GMACs
    assert report.flops == sum(layer.flops for layer in report.layers)
    for mode in report.modes.values():
        assert mode.roofline_ms is not None
        assert mode.roofline_ms < mode.device_ms
        assert mode.images_per_s == pytest.approx(1e3 / mode.latency_ms)
        assert mode.tflops == pytest.approx(report.flops / mode.latency_ms / 1e9)


def test_a_cpu_runs_its_kernels_as_they_are_called(graph_of: Callable[[str], Graph]) -> None:
    kernels = predict_graph(graph_of("alexnet"), load_profile("amd-epyc-2-threads")).kernels
    assert list(kernels) == ["eager", "default"]
    assert all(kernel.host_start_us == kernel.device_start_us for kernel in kernels["eager"])


def test_names_of_kernels() -> None:
    graph = parse(
        "graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n"
        "  %1 = exp(self=%0) : float32[64]\n  return %1\n}"
    )
    kinds = {"7": "relu", "8": "exp"}
    assert kernel_name(Kernel("triton", graph, ("7.0", "7", "8")), kinds) == "relu+exp"
    assert kernel_name(Kernel("aten", graph, ("7",)), kinds) == "exp"  # the kernel's own anchor
    assert kernel_name(Kernel("triton", graph, ("weight.0",)), kinds) == "exp"
