"""The order of lowering: equal to what Inductor's own pass makes of random graphs, and what comes of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from costmodel.capture.trace import capture
from costmodel.device import ASSUMED_GPU
from costmodel.inductor.compilation import Compilation, Target
from costmodel.inductor.pipeline import compiled_kernels
from costmodel.inductor.reorder_for_locality import reorder_for_locality
from costmodel.ir import Graph, parse

Operands = Sequence[tuple[int, int]]
"""Of each operator two that come before it; 0 is the graph's input."""


def graph_of(operands: Operands) -> Graph:
    kind = "float32[8]"
    lines = ["graph m {", f"  input %x: {kind}"]
    names = ["x", *(str(number) for number in range(len(operands)))]
    for number, (left, right) in enumerate(operands):
        lines.append(f"  %{number} = add.Tensor(self=%{names[left]}, other=%{names[right]}) : {kind}")
    return parse("\n".join([*lines, f"  return %{names[-1]}", "}"]))


@pytest.fixture(scope="module")
def reorder() -> Callable[[torch.fx.Graph], None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it uses what torch itself calls deprecated
        from torch._inductor.fx_passes import post_grad
    return post_grad.reorder_for_locality


def reordered(operands: Operands, reorder: Callable[[torch.fx.Graph], None]) -> list[str]:
    """The order that Inductor's pass makes."""
    graph = torch.fx.Graph()
    nodes = [graph.placeholder("x")]
    for left, right in operands:
        nodes.append(graph.call_function(torch.ops.aten.add.Tensor, (nodes[left], nodes[right])))
    numbers = {node: str(number) for number, node in enumerate(nodes[1:])}
    graph.output(nodes[-1])
    reorder(graph)
    return [numbers[node] for node in graph.nodes if node in numbers]


@st.composite
def operands_of_graphs(draw: st.DrawFn) -> Operands:
    return [tuple(draw(st.integers(0, number)) for _ in range(2)) for number in range(draw(st.integers(1, 12)))]


@given(operands_of_graphs())
def test_the_order_is_that_of_inductors_own_pass(reorder: Callable[[torch.fx.Graph], None], operands: Operands):
    compilation = Compilation(graph_of(operands), Target(False, ASSUMED_GPU.multiprocessors))
    graph = reorder_for_locality(compilation).graph.verify()
    assert [op.name for op in graph.ops] == reordered(operands, reorder)


class Block(nn.Module):
    """A norm of what two convolutions read, too, added to them at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bias = nn.Conv2d(3, 128, 3, padding=1, bias=False), nn.Parameter(torch.empty(128, 1, 1))
        self.norm = nn.BatchNorm2d(128)
        self.left, self.right = (nn.Conv2d(128, 128, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x) + self.bias)
        identity = self.norm(x)
        return self.left(x) + self.right(x) + identity


def test_what_convolutions_have_had_kept_is_not_computed_again():
    """The norm is lowered with the sum, and by then the activation is in memory."""
    with torch.device("meta"):
        kernels = compiled_kernels(capture(Block().eval(), (torch.empty(8, 3, 32, 32),)))
    (last,) = (kernel for kernel in kernels if "native_batch_norm" in str(kernel.graph))
    assert "relu" not in str(last.graph)
    (first,) = (kernel for kernel in kernels if "relu" in str(kernel.graph))
    assert len(first.graph.outputs) == 1
