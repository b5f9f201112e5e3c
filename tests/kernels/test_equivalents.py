"""Equivalents of kernels of a backward pass among those of a forward pass."""

from __future__ import annotations

import torch
from torch import nn

from costmodel.capture.step_recording import record_step
from costmodel.capture.trace import lower
from costmodel.ir import operators
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.equivalents import ATTENTION_FACTOR, INPUT_FACTOR, STRIDED_FACTOR, WEIGHT_FACTOR, equivalent
from costmodel.kernels.kernel import Kernel
from tests.support.attention import Attention


def gradients(*layers: nn.Module) -> list[Kernel]:
    """Calls for the gradients of convolutions, last layer first."""
    step = record_step(nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), *layers), (torch.empty(2, 8, 12, 12),))
    return [one for one in eager_kernels(lower(step.graph, "net")) if one.anchor.base == "convolution_backward"]


def test_a_gradient_by_input_is_a_convolution_with_exchanged_channels():
    by_input, by_weight, _ = gradients(nn.Conv2d(8, 16, 3, padding=1, bias=False))
    found = equivalent(by_input)
    assert found is not None
    graph = found.kernel.graph
    assert [value.type.shape for value in graph.values] == [(2, 16, 12, 12), (8, 16, 3, 3)]
    assert graph.ops[0].type.shape == (2, 8, 12, 12)
    assert found.factor == INPUT_FACTOR
    other = equivalent(by_weight)
    assert other is not None
    assert [value.type.shape for value in other.kernel.graph.values] == [(2, 8, 12, 12), (16, 8, 3, 3)]
    assert other.factor == WEIGHT_FACTOR


def test_equivalents_do_as_much_arithmetic():
    for kernel in gradients(nn.Conv2d(8, 16, 3, stride=2, bias=False), nn.Conv2d(16, 16, 3, groups=4, bias=False)):
        found = equivalent(kernel)
        assert found is not None
        mine, other = kernel, found.kernel
        assert operators.flops(mine.graph, mine.anchor) == operators.flops(other.graph, other.anchor)


def test_a_gradient_by_input_of_a_strided_convolution_takes_longer_as_it_writes_more():
    by_input, by_weight, _ = gradients(nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False))
    found = [equivalent(one) for one in (by_input, by_weight)]
    assert [one.factor for one in found if one is not None] == [STRIDED_FACTOR, WEIGHT_FACTOR]
    by_input, *_ = gradients(nn.Conv2d(8, 16, 3, stride=(2, 3), padding=1, groups=8, bias=False))
    depthwise = equivalent(by_input)
    assert depthwise is not None
    assert depthwise.factor == INPUT_FACTOR * 6  # 12 x 12 pixels for 6 x 4


def test_a_transposed_convolution_has_none():
    by_input, *_ = gradients(nn.ConvTranspose2d(8, 4, 2, stride=2, bias=False))
    assert equivalent(by_input) is None


def test_a_gradient_of_an_activation_moves_what_a_product_does():
    step = record_step(nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU()), (torch.empty(2, 8, 12, 12),))
    (kernel,) = (one for one in eager_kernels(lower(step.graph, "net")) if one.anchor.base == "threshold_backward")
    found = equivalent(kernel)
    assert found is not None
    assert found.kernel.traffic_bytes == 3 * 4 * 2 * 8 * 144  # gradient and result read, gradient written
    assert found.factor == 1.0


def test_attentions_backward_pass_is_some_forward_passes():
    step = record_step(Attention(), (torch.empty(3, 10, 16),), amp="float16")
    kernels = eager_kernels(lower(step.graph, "net"))
    (kernel,) = (one for one in kernels if one.anchor.base == "_scaled_dot_product_flash_attention_backward")
    found = equivalent(kernel)
    assert found is not None
    assert found.factor == ATTENTION_FACTOR
    assert operators.flops(kernel.graph, kernel.anchor) * 2 == 5 * operators.flops(
        found.kernel.graph, found.kernel.anchor
    )
