"""Features and groups of kernels that only a training step runs, by hand."""

from __future__ import annotations

import math

import torch
from torch import nn

from costmodel.capture.step_recording import record_step
from costmodel.capture.trace import lower
from costmodel.features import Roofline, featurize, group_of
from costmodel.ir import TensorType
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.kernel import Kernel
from costmodel.kernels.optimizers import optimizer_graph

ROOFLINE = Roofline(4e6, {"conv.float32": 50e6, "matmul.float32": 50e6}, 1.5)


def kernels_of(module: nn.Module, *shape: int) -> list[Kernel]:
    """Kernels of an eager step."""
    return list(eager_kernels(lower(record_step(module, (torch.empty(shape),)).graph, "net")))


def net() -> nn.Module:
    """Convolution with batch norm and ReLU twice."""
    return nn.Sequential(
        *(nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
    )


def test_groups_of_a_step():
    found = {kernel.anchor.base: group_of(kernel) for kernel in kernels_of(net(), 2, 4, 8, 8)}
    assert found["convolution"] == "conv"
    assert found["convolution_backward"] == "conv_backward"
    assert found["cudnn_batch_norm"] == found["cudnn_batch_norm_backward"] == "aten_backward"
    assert found["threshold_backward"] == "aten_backward"
    assert found["add"] == found["relu"] == "aten"
    (kernel,) = eager_kernels(optimizer_graph([TensorType("float32", (8,))], "sgd"))
    assert group_of(kernel) == "foreach"


def test_a_gradient_by_weight_is_a_matmul_of_filters_by_elements():
    kernels = [kernel for kernel in kernels_of(net(), 2, 4, 8, 8) if kernel.anchor.base == "convolution_backward"]
    by_input, by_weight, first = (featurize(kernel, ROOFLINE, 132) for kernel in kernels)
    assert (by_input["by_input"], by_input["by_weight"]) == (1.0, 0.0)
    assert (by_weight["by_input"], by_weight["by_weight"]) == (0.0, 1.0)
    assert first["by_weight"] == 1.0
    # 16 output channels; 8 input channels x 3x3; 2 images x 4x4 pixels
    assert by_weight["log_m"] == math.log2(16 + 1)
    assert by_weight["log_n"] == math.log2(8 * 9 + 1)
    assert by_weight["log_k"] == math.log2(2 * 16 + 1)
    # 2 images x 8x8 pixels; 8 input channels; 16 output channels x 3x3
    assert by_input["log_m"] == math.log2(2 * 64 + 1)
    assert by_input["log_n"] == math.log2(8 + 1)
    assert by_input["log_k"] == math.log2(16 * 9 + 1)
    assert by_weight["stride"] == 2.0


def test_a_norm_in_training_reads_its_input_twice():
    kernels = kernels_of(net(), 2, 4, 8, 8)
    norm, backward = (
        next(kernel for kernel in kernels if kernel.anchor.base == name)
        for name in ("cudnn_batch_norm", "cudnn_batch_norm_backward")
    )
    size = 4 * 2 * 8 * 64
    assert featurize(backward, ROOFLINE, 132)["log_scratch"] == math.log2(2 * (4 * 2 * 16 * 16) + 1)
    assert featurize(norm, ROOFLINE, 132)["log_scratch"] == math.log2(size + 1)
    # input read twice, result written: 3 x size, and the parameters of 8 channels
    assert abs(ROOFLINE.bound_us(norm) - 1.5 - 3 * size / 4e6) < 5 * 32 / 4e6


def test_an_optimizer_counts_tensors_elements_and_launches():
    graph = optimizer_graph([TensorType("float32", (100,)), TensorType("float32", (28,))], "momentum")
    last = featurize(eager_kernels(graph)[-1], ROOFLINE, 132)
    assert last["lists"] == 2.0
    assert last["log_tensors"] == math.log2(2 + 1)
    assert last["log_elements"] == math.log2(128 + 1)
    assert last["log_launches"] == 1.0
