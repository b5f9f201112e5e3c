"""The layout that FLOPs decide on, on both sides of each bound of Inductor's rule."""

from __future__ import annotations

import pytest

from costmodel.inductor.layout import NODES_PER_CONVOLUTION, prefers_channels_last
from costmodel.ir import Graph, parse


def convolution(name: str, outputs: int, inputs: int, kernel: int = 3, groups: int = 1, image: int = 8) -> list[str]:
    """A value, a weight and a convolution of them that keeps the size."""
    pad = kernel // 2
    geometry = f"stride=[1, 1], padding=[{pad}, {pad}], dilation=[1, 1], transposed=False, output_padding=[0, 0]"
    operands = f"input=%x{name}, weight=%w{name}, bias=None"
    return [
        f"input %x{name}: float32[1,{inputs * groups},{image},{image}]",
        f"param %w{name}: float32[{outputs},{inputs},{kernel},{kernel}]",
        f"%c{name} = convolution({operands}, {geometry}, groups={groups}) : float32[1,{outputs},{image},{image}]",
    ]


def graph_of(*lines: str) -> Graph:
    values = [line for line in lines if line.startswith(("input", "param"))]
    ops = [line for line in lines if line.startswith("%")]
    return parse("\n  ".join(["graph g {", *values, *ops, f"return {ops[-1].split()[0]}"]) + "\n}")


@pytest.mark.parametrize(
    ("outputs", "inputs", "kernel", "groups", "weight"),
    [
        (128, 4, 3, 2, 1.358),  # grouped
        (128, 1, 3, 128, 0.823),  # a depthwise one is not
        (64, 64, 3, 1, 0.783),  # small
        (65, 64, 3, 1, 0.823),
        (64, 65, 3, 1, 0.823),
        (64, 128, 3, 1, 0.725),  # twice as many inputs as outputs
        (65, 129, 3, 1, 0.823),
        (64, 128, 1, 1, 0.823),  # of one pixel
    ],
)
def test_classes_of_convolutions_by_their_weight(outputs: int, inputs: int, kernel: int, groups: int, weight: float):
    """Beside a grouped convolution of a share s of the arithmetic: 1.358 s + weight (1 - s) may be 1 at most."""
    own = 64 * outputs * inputs * kernel**2
    if weight > 1:
        assert not prefers_channels_last(graph_of(*convolution("a", outputs, inputs, kernel, groups)))
        return
    share = (1 - weight) / (1.358 - weight)  # of a grouped convolution, from which the layout stays
    pixels = own * share / (1 - share) / (2 * 4 * 9)  # of 4 outputs from 2 inputs each, a group
    for factor, expected in ((0.97, True), (1.03, False)):
        side = round((pixels * factor) ** 0.5)
        grouped = convolution("b", 4, 2, 3, 2, image=side)
        found = graph_of(*convolution("a", outputs, inputs, kernel, groups), *grouped)
        assert prefers_channels_last(found) is expected


def test_without_convolutions_there_is_nothing_to_prefer():
    graph = graph_of("input %x: float32[4]", "%0 = relu(self=%x) : float32[4]")
    assert not prefers_channels_last(graph)
    assert not prefers_channels_last(graph, on_cpu=True)


def test_a_cpu_always_prefers_channels_last():
    grouped = graph_of(*convolution("a", 128, 4, 3, 2))
    assert prefers_channels_last(grouped, on_cpu=True)
    assert not prefers_channels_last(grouped)


@pytest.mark.parametrize("count", [1, 2])
def test_a_graph_of_many_nodes_for_each_convolution_keeps_its_layout(count: int):
    lines = [line for index in range(count) for line in convolution(str(index), 64, 64)]
    known = 2 * count + count + 1  # values, convolutions and the output
    for more, wanted in ((-1, True), (0, False)):
        extra = NODES_PER_CONVOLUTION * count - known + more
        relus = [f"%{i} = relu(self=%{i - 1 if i else 'c0'}) : float32[1,64,8,8]" for i in range(extra)]
        assert prefers_channels_last(graph_of(*lines, *relus)) is wanted
