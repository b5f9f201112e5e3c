"""Blocks, regions and fused convolutions of cuDNN, by hand."""

import pytest
import torch
from torch import nn

from costmodel.capture.executable import capture_exactly
from costmodel.ir import Ref, parse
from costmodel.ir.subgraph import cut, fused_part
from costmodel.planning.blocks import block_edges, find_blocks
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from tests.rewrites.test_registry import bases


class Branches(nn.Module):
    """A stem, two branches of which one ends in an addition, their concatenation, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.left = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)
        self.right, self.head = nn.Conv2d(8, 8, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        left = torch.relu(self.left(x) + x)
        right = torch.sigmoid(self.right(x))
        return self.head(torch.cat([left, right], 1)).flatten(1)


def main_graph():
    return hoist_constants(
        apply_rewrites(capture_exactly(Branches().eval(), (torch.empty(1, 3, 8, 8),), "b").graph, ())
    ).main


def test_blocks_of_branches():
    graph = main_graph()
    kinds = {op.name: op.base for op in graph.ops}
    blocks = find_blocks(graph)
    assert [([kinds[name] for name in block.ops], block.fusible) for block in blocks] == [
        (["convolution", "relu"], True),
        (["convolution", "add", "relu"], True),
        # a sigmoid is nothing that cuDNN fuses: what it cannot run hangs together up to the end
        (["convolution", "sigmoid", "cat", "convolution", "view"], False),
    ]
    assert sorted(block_edges(graph, blocks)) == [(0, 1), (0, 2), (1, 2)]


def test_a_part_reads_and_returns_what_crosses_its_border():
    graph = main_graph()
    blocks = find_blocks(graph)
    part = cut(graph, blocks[1].ops)
    assert [ref.name for ref in part.inputs] == [blocks[0].ops[-1], "left.weight", "left.bias"]
    assert part.outputs == (Ref(blocks[1].ops[-1]),)
    assert [value.role for value in part.graph.values] == ["input", "param", "param"]


def test_equal_parts_have_equal_graphs():
    net = nn.Sequential(*[layer for _ in range(2) for layer in (nn.Conv2d(4, 4, 1), nn.ReLU())]).eval()
    graph = hoist_constants(capture_exactly(net, (torch.empty(1, 4, 5, 5),), "n").graph).main
    first, second = (cut(graph, block.ops) for block in find_blocks(graph))
    assert str(first.graph) == str(second.graph)
    assert first.inputs != second.inputs


def test_the_fused_forms():
    graph = main_graph()
    first, second, third = (cut(graph, block.ops) for block in find_blocks(graph))
    (plain,) = fused_part(first).graph.ops
    assert (plain.base, plain.arg("bias"), plain.type.shape) == ("cudnn_convolution_relu", Ref("a2"), (1, 8, 6, 6))
    (added,) = fused_part(second).graph.ops
    assert (added.base, added.arg("z"), added.arg("alpha")) == ("cudnn_convolution_add_relu", Ref("a0"), 1.0)
    assert fused_part(third) is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda m, x: torch.relu(m.conv(x) * 2), id="a product in between"),
        pytest.param(lambda m, x: torch.relu(torch.add(m.conv(x), x, alpha=2)), id="a scaled addend"),
        pytest.param(lambda m, x: torch.relu(m.conv(x) + x[:, :, :1]), id="a broadcast addend"),
        pytest.param(lambda m, x: (y := m.conv(x), torch.relu(y)), id="a result that others read"),
        pytest.param(lambda m, x: torch.relu(m.conv(x) + torch.sin(m.conv(x))), id="an addend that is made later"),
    ],
)
def test_what_cudnn_cannot_run_as_one(body):
    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)

        def forward(self, x):
            return body(self, x)

    graph = hoist_constants(capture_exactly(Body().eval(), (torch.empty(1, 4, 5, 5),), "n").graph).main
    assert not any(block.fusible for block in find_blocks(graph))
    assert "relu" in bases(graph)


class Viewed(nn.Module):
    """A convolution with a view before it, another view that is read there too, and a view of its result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 1)

    def forward(self, x):
        one, two = x.chunk(2, 1)
        return torch.relu(self.conv(one)).flatten(1), two


def test_views_stay_beside_the_fused_form():
    torch.manual_seed(0)
    net, x = Viewed().eval(), torch.randn(2, 4, 5, 5)
    graph = hoist_constants(capture_exactly(net, (x,), "n").graph).main
    (block,) = find_blocks(graph)
    part = cut(graph, block.ops)
    fused = fused_part(part)
    assert bases(part.graph) == ["split", "convolution", "relu", "view"]
    assert bases(fused.graph) == ["split", "cudnn_convolution_relu", "view"]
    assert [op.name for op in fused.graph.ops] == ["0", "1", "2"]
    assert (fused.inputs, fused.outputs) == (part.inputs, part.outputs)
    assert fused.graph.ops[1].refs()[0] == Ref("0")
    assert fused.graph.ops[2].refs() == (Ref("1"),)
    fused.graph.verify()


def test_a_view_inside_is_nothing_that_cudnn_runs():
    text = """graph _ {
  input %x: float32[1,2,4,4]
  param %w: float32[3,2,1,1]
  param %b: float32[3]
  %0 = convolution(input=%x, weight=%w, bias=%b, stride=[1, 1], padding=[0, 0], transposed=False, groups=1) : TYPE
  %1 = alias(self=%0) : TYPE
  %2 = relu(self=%0) : TYPE
  return %2, %1
}""".replace("TYPE", "float32[1,3,4,4]")
    graph = parse(text)
    assert fused_part(cut(graph, ("0", "1", "2"))) is None
    assert fused_part(cut(parse(text.replace("%2, %1", "%2, %0")), ("0", "1", "2"))) is None
    plain = parse(
        text.replace("  %1 = alias(self=%0) : TYPE\n".replace("TYPE", "float32[1,3,4,4]"), "").replace(", %1", "")
    )
    assert fused_part(cut(plain, ("0", "2"))) is not None
