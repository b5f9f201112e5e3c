"""Values on the way to a convolution that lie as Inductor prefers, by hand from its rules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.device import ASSUMED_GPU
from costmodel.inductor.compilation import ChannelsLast, Compilation, Target
from costmodel.inductor.layout_channels_last import prefer_channels_last, preferred_values
from costmodel.ir import Graph, parse

CONVOLUTION = "stride=[1, 1], padding=[0, 0], dilation=[1, 1], transposed=False, output_padding=[0, 0], groups=1"


class Block(nn.Module):
    """A norm over features of what a convolution made, and again a convolution, as hybrids of both have it."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.first, self.batch = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.norm, self.mix = nn.LayerNorm(32), nn.Linear(32, 32)
        self.last = nn.Conv2d(32, 32, 3, padding=1, bias=False) if again else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.batch(self.first(x)).permute(0, 2, 3, 1)
        return self.last((tokens + self.mix(self.norm(tokens))).permute(0, 3, 1, 2))


def preferred(graph: Graph) -> Graph:
    """Apply the pass to a graph whose convolutions are decided to run in channels_last."""
    decided = ChannelsLast(graph, frozenset(op.name for op in graph.ops if op.base == "convolution"))
    return prefer_channels_last(Compilation(graph, Target(False, ASSUMED_GPU.multiprocessors), decided)).graph


def laid_out(module: nn.Module) -> Graph:
    return preferred(capture(module.eval(), (torch.empty(1, 16, 14, 14, device="meta"),)))


def copies(graph: Graph) -> list[tuple[tuple[int, ...], str]]:
    return [
        (op.type.shape, op.type.layout) for op in graph.ops if op.base == "clone" and op.refs()[0].name[-5:] == ".seen"
    ]


def test_a_view_that_several_read_is_a_copy_in_the_preferred_order():
    """The batch norm reads five tensors, more than four: what sees its result twice is kept, rows side by side."""
    assert copies(laid_out(Block(again=True))) == [((1, 14, 14, 32), "nhwc")]


def test_behind_the_last_convolution_nothing_is_preferred():
    graph = laid_out(Block(again=False))
    assert copies(graph) == []
    assert graph == capture(Block(again=False).eval(), (torch.empty(1, 16, 14, 14, device="meta"),))


@pytest.mark.parametrize(
    ("names", "again", "layout"),
    [("abcd", True, "nchw"), ("abcde", False, "nchw"), ("abcde", True, "nhwc"), ("abcdefghi", False, "nhwc")],
)
def test_sums_of_many_are_kept_in_the_preferred_order(names: str, again: bool, layout: str):
    """More than four tensors for something that is used again, more than eight for all."""
    kind = "float32[1,8,6,6]"
    lines = ["graph m {", *(f"  input %{name}: {kind}" for name in names), "  param %w: float32[4,8,1,1]"]
    total = names[0]
    for index, name in enumerate(names[1:]):
        lines.append(f"  %{index} = add.Tensor(self=%{total}, other=%{name}) : {kind}")
        total = str(index)
    lines.append(f"  %r = relu(self=%{total}) : {kind}")
    lines.append(f"  %s = mul.Tensor(self=%r, other=%{total if again else 'r'}) : {kind}")
    lines.append(f"  %out = convolution(input=%s, weight=%w, bias=None, {CONVOLUTION}) : float32[1,4,6,6]")
    graph = preferred(parse("\n".join([*lines, "  return %out", "}"])))
    (found,) = (op for op in graph.ops if op.name == total)
    assert found.type.layout == layout


def test_a_batched_product_passes_no_preference_on():
    """Its inputs keep their layout, though a convolution reads its output."""
    kind = "float32[1,8,6,6]"
    graph = parse(
        f"""graph m {{
  input %x: {kind} nhwc
  param %v: float32[8]
  param %w: float32[4,8,1,1]
  %0 = native_batch_norm(input=%x, weight=%v, bias=%v, running_mean=%v, running_var=%v) : {kind}
  %1 = view(self=%0, size=[8, 6, 6]) : float32[8,6,6]
  %2 = bmm(self=%1, mat2=%1) : float32[8,6,6]
  %3 = view(self=%2, size=[1, 8, 6, 6]) : {kind}
  %4 = convolution(input=%3, weight=%w, bias=None, {CONVOLUTION}) : float32[1,4,6,6]
  return %4, %0
}}"""
    )
    assert preferred(graph) == graph


def test_without_convolutions_in_channels_last_nothing_is_preferred():
    graph = capture(Block(again=True).eval(), (torch.empty(1, 16, 14, 14, device="meta"),))
    compilation = Compilation(graph, Target(False, ASSUMED_GPU.multiprocessors))
    assert prefer_channels_last(compilation) is compilation


def wanted(graph: Graph) -> frozenset[str]:
    """Names of the preferred values of a graph whose convolutions are decided to run in channels_last."""
    decided = ChannelsLast(graph, frozenset(op.name for op in graph.ops if op.base == "convolution"))
    return preferred_values(Compilation(graph, Target(False, ASSUMED_GPU.multiprocessors), decided))


@pytest.mark.parametrize(("size", "found"), [(2, set()), (3, {"0"}), (5, {"0"})])
def test_a_pooling_that_reads_more_than_eight_elements_is_wanted_with_its_indices(size: int, found: set[str]):
    kind, made = "float32[1,8,6,6]", f"[1,8,{7 - size},{7 - size}]"
    window = f"kernel_size=[{size}, {size}], stride=[1, 1], padding=[0, 0], dilation=[1, 1], ceil_mode=False"
    graph = parse(f"""graph m {{
  input %x: {kind}
  param %w: float32[4,8,1,1]
  %0 = max_pool2d_with_indices(self=%x, {window}) : float32{made}, int64{made}
  %1 = convolution(input=%0, weight=%w, bias=None, {CONVOLUTION}) : float32[1,4,{7 - size},{7 - size}]
  return %1
}}""")
    assert wanted(graph) == found


@pytest.mark.parametrize(("is_last", "found"), [(False, set()), (True, {"7"})])
def test_what_reads_a_value_before_the_last_convolution_is_wanted_too(is_last: bool, found: set[str]):
    """A sum of nine tensors that no convolution reads, but one reads its first two summands' sum."""
    kind = "float32[1,8,6,6]"
    names = "abcdefghi"
    convolution = f"  %out = convolution(input=%0, weight=%w, bias=None, {CONVOLUTION}) : float32[1,4,6,6]"
    lines = ["graph m {", *(f"  input %{name}: {kind}" for name in names), "  param %w: float32[4,8,1,1]"]
    lines.append(f"  %0 = add.Tensor(self=%a, other=%b) : {kind}")
    lines += [] if is_last else [convolution]
    for index, name in enumerate(names[2:], 1):
        lines.append(f"  %{index} = add.Tensor(self=%{index - 1}, other=%{name}) : {kind}")
    lines += [convolution] if is_last else []
    assert wanted(parse("\n".join([*lines, "  return %out, %7", "}"]))) == found
