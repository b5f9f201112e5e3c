"""Backward passes of convolutions, divided into calls of cuDNN, against ATen's results on a CPU."""

from __future__ import annotations

import torch
from torch import nn

from costmodel.capture.step_recording import record_step
from costmodel.capture.trace import lower
from costmodel.execution.fx_module import build_module
from costmodel.ir import Graph
from costmodel.kernels.convolution_gradients import divide_convolution_gradients
from costmodel.kernels.eager_dispatch import eager_kernels


def step_of(bias: bool = True) -> Graph:
    """Step of two convolutions."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), nn.Conv2d(4, 6, 3, padding=1, bias=bias))
    return lower(record_step(module, (torch.empty(2, 3, 8, 8),)).graph, "net")


def test_each_gradient_is_a_call():
    divided = divide_convolution_gradients(step_of()).verify()
    second, first = ([op for op in divided.ops if op.module == name and "backward" in op.base] for name in ("1", "0"))
    assert [op.arg("output_mask") for op in second] == [(True, False, False), (False, True, False)]
    assert [op.arg("output_mask") for op in first] == [(False, True, False)]
    sums = [op for op in divided.ops if op.base == "sum"]
    assert [(op.module, op.type.shape, op.arg("dim")) for op in sums] == [
        ("1", (6,), (0, 2, 3)),
        ("0", (4,), (0, 2, 3)),
    ]


def test_a_lone_gradient_stays_as_it_is():
    graph = step_of(bias=False)
    pairs = [
        [op for op in one.ops if op.base == "convolution_backward" and op.module == "0"]
        for one in (graph, divide_convolution_gradients(graph))
    ]
    assert [[(op.name, op.types, op.arg("output_mask")) for op in some] for some in pairs] == 2 * [
        [(pairs[0][0].name, pairs[0][0].types, (False, True, False))]
    ]


def test_the_calls_compute_what_the_whole_does():
    graph = step_of()
    generator = torch.Generator().manual_seed(0)
    kinds = [(value.type.shape, getattr(torch, value.type.dtype)) for value in graph.values]
    given = [torch.randn(shape, generator=generator).to(dtype) for shape, dtype in kinds]
    whole, parts = (build_module(one)(*given) for one in (graph, divide_convolution_gradients(graph)))
    assert len(whole) == len(parts) == 4
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)


def test_a_kernel_returns_the_gradient_that_it_computes():
    kernels = [kernel for kernel in eager_kernels(step_of()) if kernel.anchor.base == "convolution_backward"]
    by_input, by_weight, _ = kernels
    assert by_input.graph.type_of(by_input.graph.outputs[0]).shape == (2, 4, 6, 6)
    assert by_weight.graph.type_of(by_weight.graph.outputs[0]).shape == (6, 4, 3, 3)
    # incoming gradient 2x6x6x6, input 2x4x6x6, weight 6x4x3x3 read; the gradient by weight written
    assert by_weight.traffic_bytes == 4 * (2 * 6 * 36 + 2 * 4 * 36 + 216 + 216)
