"""Convolutions at batch 1 whose result Inductor takes to be in plain order.

What is expected is what Inductor itself decided (torch 2.11, its scheduler told of an H200) for blocks like these:
the layout that `conv_layout` gave each convolution.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from costmodel.capture.trace import capture
from costmodel.device import ASSUMED_GPU
from costmodel.inductor.compilation import Compilation, Target
from costmodel.inductor.decompositions import decompose, unroll_attention
from costmodel.inductor.layout_batch_one import contiguous_convolutions
from costmodel.inductor.pipeline import compile_graph, compiled_kernels
from costmodel.ir import Graph


class OfTokens(nn.Module):
    """A convolution on tokens regrouped to an image, between linear layers, as in the feed-forward layers of PVT v2."""

    def __init__(self, conv: nn.Module, residual: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 4, 4)
        self.first, self.conv, self.last = nn.Linear(32, 32), conv, nn.Linear(32, 32)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        made = self.first(tokens)
        if self.residual:
            made = tokens + made
        images = self.conv(made.transpose(1, 2).view(len(x), 32, 8, 8))
        result: Tensor = self.last(images.flatten(2).transpose(1, 2))
        return result


class Turned(nn.Module):
    """A convolution on what a linear layer, or a norm after it, makes of an image with its channels last."""

    def __init__(self, norm: bool, bias: bool = True, part: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 4, 4)
        self.linear = nn.Linear(32, 32, bias)
        self.norm = nn.LayerNorm(32) if norm else nn.Identity()
        self.conv = nn.Conv2d(part, part, 3, padding=1, groups=part)
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        images = self.norm(self.linear(self.stem(x).permute(0, 2, 3, 1)))
        result: Tensor = self.conv(images.permute(0, 3, 1, 2)[:, : self.part])
        return result


class Halved(nn.Module):
    """Half of the channels of an image in plain order: Inductor copies them, into the strides of a dense tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 4, 4)
        self.conv = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.conv(self.stem(x).relu().chunk(2, 1)[1])
        return result


class OneChannel(nn.Module):
    """A convolution of one channel on what a linear layer makes of the pixels of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.linear = nn.Conv2d(3, 4, 4, 4), nn.Linear(4 * 8 * 8, 64)
        self.conv = nn.Conv2d(1, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.conv(self.linear(self.stem(x).flatten(1)).view(len(x), 1, 8, 8))
        return result


def graph_of(module: nn.Module, batch: int = 1) -> Graph:
    return capture(module.eval(), [torch.empty(batch, 3, 32, 32, device="meta")])


def before_layouts(module: nn.Module, batch: int = 1) -> Compilation:
    compilation = Compilation(graph_of(module, batch), Target(False, ASSUMED_GPU.multiprocessors))
    return decompose(unroll_attention(compilation))


def depthwise() -> nn.Conv2d:
    return nn.Conv2d(32, 32, 3, padding=1, groups=32)


@pytest.mark.parametrize(
    ("module", "contiguous"),
    [
        pytest.param(OfTokens(depthwise()), True, id="depthwise, of tokens"),  # pvt_v2, strides (C, 1, W C, C)
        pytest.param(OfTokens(depthwise(), residual=True), True, id="after an addition"),  # davit, twins: (0, 1, ...)
        pytest.param(OfTokens(nn.Conv2d(32, 32, 1)), True, id="of one pixel"),  # coatnet
        pytest.param(OfTokens(nn.Conv2d(32, 32, 2, 2)), False, id="of many channels and pixels"),  # pvt_v2's reduction
        pytest.param(Turned(norm=True), True, id="after a norm"),  # convnext's first block
        pytest.param(Turned(norm=False), True, id="after a bias"),  # which is a kernel of its own
        pytest.param(Turned(norm=False, bias=False, part=16), False, id="after a product"),  # mambaout
        pytest.param(OneChannel(), False, id="of one channel"),  # which lies in either order
        pytest.param(Halved(), False, id="of half the channels"),  # shufflenet, mixnet
    ],
)
def test_at_batch_1_some_views_hide_that_channels_are_last(module: nn.Module, contiguous: bool):
    compilation = before_layouts(module)
    last = [op.name for op in compilation.graph.ops if op.base == "convolution"][-1]
    assert (last in contiguous_convolutions(compilation)) is contiguous
    assert not contiguous_convolutions(before_layouts(module, batch=2))


@pytest.mark.parametrize(("batch", "layouts"), [(1, ["nhwc", "nchw"]), (2, ["nhwc", "nhwc"])])
def test_the_library_copies_the_input_within_its_call(batch: int, layouts: list[str]):
    graph = graph_of(OfTokens(depthwise()), batch)
    convolutions = [op for op in compile_graph(graph).graph.ops if op.base == "convolution"]
    assert [op.type.layout for op in convolutions] == layouts
    kernel = next(k for k in reversed(compiled_kernels(graph)) if k.anchor.base == "convolution")
    assert kernel.backend == "aten"
    assert kernel.launches == (2 if batch == 1 else 1)
    assert [op.base for op in kernel.graph.ops if op.base == "contiguous"] == ["contiguous"] * (kernel.launches - 1)
    fused = [k for k in compiled_kernels(graph) if k.backend == "triton"]
    assert not any(op.base == "contiguous" for k in fused for op in k.graph.ops)
