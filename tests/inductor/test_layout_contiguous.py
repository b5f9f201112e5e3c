"""Values that Inductor lays out plainly among others that lie channels last, by hand from its rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from collectors.processes.run_graph import argument_sets
from costmodel.capture.trace import capture
from costmodel.execution.fx_module import build_module
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.ir import Ref
from costmodel.ir.operators import CONVOLUTION_INPUT_COPY
from costmodel.kernels.kernel import Kernel

WIDTH = 128


def conv(inputs: int, outputs: int = WIDTH) -> nn.Module:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)


class Joined(nn.Module):
    """Two branches side by side, pooled, and a convolution; another one may read what they are joined to."""

    def __init__(self, shortcut: bool = False, residual: bool = False) -> None:
        super().__init__()
        self.stem, self.left, self.right = conv(3), conv(WIDTH), conv(WIDTH)
        self.pool, self.last = nn.MaxPool2d(2, 2), conv(2 * WIDTH)
        self.beside = conv(2 * WIDTH) if shortcut else None
        self.wide = conv(WIDTH, 2 * WIDTH) if residual else None

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x)
        joined = torch.cat([torch.relu(self.left(x)), torch.relu(self.right(x))], 1)
        if self.wide is not None:
            joined = joined + self.wide(x)
        beside = () if self.beside is None else (self.beside(joined),)
        return self.last(self.pool(joined)), *beside


class Halved(nn.Module):
    """A convolution whose result goes two ways, half of the channels each."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.norm, self.between = conv(3), nn.BatchNorm2d(WIDTH), between
        self.left, self.right = conv(WIDTH // 2), conv(WIDTH // 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        left, right = self.between(self.norm(self.stem(x))).chunk(2, 1)
        return self.left(left), self.right(right)


def kernels_of(module: nn.Module) -> tuple[Kernel, ...]:
    with torch.device("meta"):
        return compiled_kernels(capture(module.eval(), (torch.empty(8, 3, 32, 32),)))


def orders(kernels: tuple[Kernel, ...], base: str) -> Iterator[tuple[str, ...]]:
    """Orders of the results of every kernel of Inductor's that has such an operator."""
    for kernel in kernels:
        if kernel.backend == "triton" and any(op.base == base for op in kernel.graph.ops):
            yield tuple(kernel.graph.type_of(ref).layout for ref in kernel.graph.outputs)


def test_a_concatenation_that_only_a_pooling_reads_is_plain():
    kernels = kernels_of(Joined())
    assert list(orders(kernels, "cat")) == [("nchw",)]
    assert list(orders(kernels, "max_pool2d_with_indices")) == [("nhwc",)]  # as the convolution behind it wants it
    (pooling,) = (kernel for kernel in kernels if "max_pool2d" in str(kernel.graph))
    assert [value.type.layout for value in pooling.graph.values] == ["nchw"]


@pytest.mark.parametrize("options", [{"shortcut": True}, {"residual": True}], ids=str)
def test_a_convolution_that_reads_it_and_another_tensor_in_it_decide(options: dict[str, bool]):
    kernels = kernels_of(Joined(**options))
    assert list(orders(kernels, "cat")) == [("nhwc",)]
    assert list(orders(kernels, "max_pool2d_with_indices")) == [("nhwc",)]


def test_the_base_of_parts_is_plain_and_each_part_copied():
    """The sigmoid reads five tensors, and is read once, by the call that cuts it: nobody wants it channels last."""
    kernels = kernels_of(Halved(torch.sigmoid))
    assert list(orders(kernels, "sigmoid")) == [("nchw",)]
    parts = [
        kernel for kernel in kernels if "float32[8,64,32,32] nhwc" in str(kernel.graph.type_of(kernel.graph.outputs[0]))
    ]
    copied = [kernel for kernel in parts if kernel.backend == "triton"]
    assert len(copied) == 2
    assert all(kernel.launches == 1 for kernel in kernels)


def test_parts_of_an_activation_in_place_are_copied_by_the_convolutions():
    """Two calls cut it, so that it is kept for its five reads, in the order that convolutions prefer."""
    kernels = kernels_of(Halved(torch.relu_))
    assert list(orders(kernels, "relu")) == [("nhwc",)]
    assert [kernel.launches for kernel in kernels if kernel.backend == "aten"] == [1, 2, 2]
    parts = [kernel.graph for kernel in kernels if any(op.base == CONVOLUTION_INPUT_COPY for op in kernel.graph.ops)]
    assert len(parts) == 2
    for graph in parts:
        copy = next(op for op in graph.ops if op.base == CONVOLUTION_INPUT_COPY)
        (found,) = build_module(replace(graph, outputs=(Ref(copy.name),)))(*argument_sets(graph, "cpu")[0])
        assert found.is_contiguous(memory_format=torch.channels_last)  # as it is measured, then
