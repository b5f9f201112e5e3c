"""1x1 convolutions on 1x1 images as matmuls: rewritten operators by hand, and equal outputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import costmodel
from costmodel.capture.executable import capture_exactly
from costmodel.ir import Graph, parse
from costmodel.rewrites.conv1x1_to_matmul import conv1x1_to_matmul, find_conv1x1
from costmodel.rewrites.registry import REWRITES, apply_rewrites
from tests.execution.test_planned_module import plan_for
from tests.rewrites.test_registry import bases, run

ONE = """graph g {
  input %x: float16[4,6,1,1]
  param %w: float16[8,6,1,1]
  param %b: float16[8]
  %0 = convolution(input=%x, weight=%w, bias=%b, stride=[1, 1], padding=[0, 0], dilation=[1, 1], transposed=False, \
output_padding=[0, 0], groups=1) : float16[4,8,1,1]
  %1 = sigmoid(self=%0) : float16[4,8,1,1]
  return %1
}"""


class Squeezed(nn.Module):
    """Squeeze-and-excitation: channels scaled by two convolutions of their means."""

    def __init__(self, channels: int, inner: int, bias: bool = True) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, inner, 1, bias=bias), nn.Conv2d(inner, channels, 1, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3), keepdim=True)))))


def captured(net: nn.Module, x: torch.Tensor) -> Graph:
    return capture_exactly(net, (x,), "net").graph


def test_the_matmul_by_hand():
    graph = apply_rewrites(parse(ONE), ["conv1x1_to_matmul"])
    assert str(graph).splitlines()[4:] == [
        "  %0.matmul.0 = view(self=%x, size=[4, 6]) : float16[4,6]",
        "  %0.matmul.1 = view(self=%w, size=[8, 6]) : float16[8,6]",
        "  %0.matmul.2 = t(self=%0.matmul.1) : float16[6,8] strided",
        "  %0.matmul.3 = addmm(self=%b, mat1=%0.matmul.0, mat2=%0.matmul.2) : float16[4,8]",
        "  %0 = view(self=%0.matmul.3, size=[4, 8, 1, 1]) : float16[4,8,1,1]",
        "  %1 = sigmoid(self=%0) : float16[4,8,1,1]",
        "  return %1",
        "}",
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("[4,6,1,1]", "[4,6,2,2]"), "2x2 images"),
        (("[8,6,1,1]", "[8,6,3,3]"), "a kernel of nine"),
        (("[8,6,1,1]", "[8,3,1,1]"), "two groups"),
        (("param %w", "input %w"), "a weight that is known at run time only"),
        (("[4,6,1,1]", "[4,6,1,1] strided"), "channels that do not lie side by side"),
        (("transposed=False", "transposed=True"), "a transposed convolution"),
    ],
)
def test_what_stays_a_convolution(change: tuple[str, str], why: str):
    text = ONE.replace(*change)
    text = text.replace("groups=1", "groups=2") if "groups" in why else text
    assert find_conv1x1(parse(text)) == {}, why
    assert conv1x1_to_matmul(parse(text)) == parse(text), why


def test_those_of_one_size_are_one_place():
    net = nn.Sequential(Squeezed(8, 4), Squeezed(8, 4), Squeezed(8, 2)).eval()
    graph = captured(net, torch.empty(2, 8, 5, 5))
    places = find_conv1x1(graph)
    assert [len(names) for names in places.values()] == [2, 2, 1, 1]
    assert all(place == names[0] for place, names in places.items())
    first = next(iter(places))
    assert REWRITES["conv1x1_to_matmul"].places(graph) == tuple(places)
    assert bases(apply_rewrites(graph, [f"conv1x1_to_matmul:{first}"])).count("convolution") == 4


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("before", [(), ("fold_batch_norm", "channels_last")])
def test_products_compute_the_same(before: tuple[str, ...], bias: bool):
    torch.manual_seed(0)
    net, x = Squeezed(8, 4, bias).eval(), torch.randn(3, 8, 5, 5)
    graph = apply_rewrites(captured(net, x), (*before, "conv1x1_to_matmul"))
    assert "convolution" not in bases(graph)
    assert ("addmm" if bias else "mm") in bases(graph)
    values = dict(net.named_parameters()) | {"x": x}
    with torch.no_grad():
        torch.testing.assert_close(run(graph, values), net(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_plan_with_products_is_applied(batch: int):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Conv2d(3, 8, 3), Squeezed(8, 4)).eval(), torch.randn(batch, 3, 7, 7)
    fast = costmodel.apply(net, plan_for(net, (x,), rewrites=("channels_last", "conv1x1_to_matmul")), (x,))
    assert fast.replaced == ()
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x), rtol=1e-5, atol=1e-5)
