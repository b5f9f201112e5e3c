"""Layers: every operator in one, named as the user would, and every kernel's time shared out whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from torch import nn

from costmodel.capture.trace import capture
from costmodel.ir import Graph, operators, parse
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.layer_groups import MOST_FROM_OUTSIDE, Layer, compiled_shares, eager_shares, layers_of
from costmodel.timeline.issue_trace import compiled_trace, eager_trace
from tests.support.random_modules import Program, made, programs

MODELS = ("densenet121", "resnet18", "swin_t", "squeezenet1_1", "mobilenet_v3_small")
Graphs = Callable[[str], Graph]


def described(graph: Graph) -> list[str]:
    return [f"{layer.name}: {' '.join(map(operators.kind_of, layer.ops))}" for layer in layers_of(graph)]


def check(graph: Graph) -> None:
    """Every operator that is no view is in one layer, and shares add up to 1."""
    layers = layers_of(graph)
    computing = [op.name for op in graph.ops if not operators.is_view(op)]
    assert sorted(op.name for layer in layers for op in layer.ops) == sorted(computing)
    positions = [layer.position for layer in layers]
    assert positions == sorted(positions)
    eager, compiled = eager_trace(graph).kernels, compiled_trace(graph).kernels
    for kernels, shares in ((eager, eager_shares(layers, eager)), (compiled, compiled_shares(graph, layers, compiled))):
        assert len(shares) == len(kernels)
        for of in shares:
            assert sum(of.values()) == pytest.approx(1.0)
            assert all(share > 0 and 0 <= place < len(layers) for place, share in of.items())


@pytest.mark.parametrize("model", MODELS)
def test_every_operator_and_every_kernel_is_shared_out(graph_of: Graphs, model: str) -> None:
    check(graph_of(model))


@given(programs)
@settings(max_examples=20)
def test_any_module_is_shared_out(program: Program) -> None:
    module, inputs = made(program)
    graph = capture(module, inputs, "any")
    if any(not operators.is_view(op) for op in graph.ops):
        check(graph)


@pytest.mark.parametrize(
    ("model", "layer"),
    [
        ("resnet18", "conv1: conv2d batch_norm relu"),
        ("resnet18", "layer1.0.conv2: conv2d batch_norm add relu"),  # the addition of its block
        ("resnet18", "layer2.0.conv2: conv2d batch_norm"),  # though the norm runs in the kernel of downsample
        ("resnet18", "layer2.0.downsample.0: conv2d batch_norm add relu"),
        ("resnet18", "avgpool: mean"),
        ("densenet121", "features.denseblock1.denselayer2: cat"),  # the module that concatenates
        ("densenet121", "features.denseblock1.denselayer2.norm1: batch_norm relu"),
        ("densenet121", "features.denseblock4: cat"),
        ("densenet121", "features.norm5: batch_norm relu"),
        ("densenet121", "mean: mean"),  # the model's own forward pass
        ("squeezenet1_1", "features.3: cat"),
        ("squeezenet1_1", "features.3.expand3x3: conv2d relu"),
        ("mobilenet_v3_small", "features.1.block.1.fc2: conv2d hardsigmoid mul"),  # squeeze-and-excitation
        ("swin_t", "features.1.0.norm1: layer_norm"),  # the windows are those of attn
    ],
)
def test_what_a_layer_is_made_of(graph_of: Graphs, model: str, layer: str) -> None:
    name = layer.partition(":")[0]
    assert [one for one in described(graph_of(model)) if one.startswith(f"{name}:")] == [layer]


class Preactivated(nn.Module):
    """Blocks that begin with a norm, which no block before them takes in."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Sequential(nn.Conv2d(4, 4, 1)), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x)) * 2.0


def test_a_block_keeps_its_norm() -> None:
    graph = capture(Preactivated().eval(), (torch.empty(1, 4, 8, 8),), "net")
    assert described(graph) == ["one.0: conv2d", "two.0: batch_norm relu mul"]


class Looping(nn.Module):
    """A recurrence in the forward pass of the model, after a layer."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.first, self.steps = nn.Conv2d(4, 4, 1), steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for _ in range(self.steps):
            y = y * 0.5
        return y


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (MOST_FROM_OUTSIDE, ["first: conv2d" + " mul" * MOST_FROM_OUTSIDE]),
        (MOST_FROM_OUTSIDE + 3, ["first: conv2d" + " mul" * MOST_FROM_OUTSIDE, "mul: mul mul mul"]),
    ],
)
def test_a_loop_of_the_model_is_a_layer_of_its_own(steps: int, expected: list[str]) -> None:
    assert described(capture(Looping(steps).eval(), (torch.empty(1, 4, 8, 8),), "net")) == expected


SHARED = """graph shared {
  input %x: float32[10]
  input %y: float32[30]
  %0 = relu(self=%x) : float32[10] @one
  %1 = exp(self=%y) : float32[30] @two
  %2 = cat(tensors=[%0, %1], dim=0) : float32[40] @joined
  return %2
}"""


def test_shares_follow_the_bytes_that_operators_move() -> None:
    """relu moves 10 + 10 elements, exp 30 + 30, and cat 40 + 40, unless its parts are written in place."""
    graph = parse(SHARED)
    layers = layers_of(graph)
    assert [layer.name for layer in layers] == ["one", "two", "joined"]
    fused = Kernel("triton", graph, ("0", "1", "2"))
    (shares,) = compiled_shares(graph, layers, (fused,))
    assert shares == {0: pytest.approx(1 / 8), 1: pytest.approx(3 / 8), 2: pytest.approx(4 / 8)}
    in_place = Kernel("triton", graph, ("0", "1", "2.0"))
    (shares,) = compiled_shares(graph, layers, (in_place,))
    assert shares == {0: pytest.approx(1 / 4), 1: pytest.approx(3 / 4)}


def test_a_copy_of_a_weight_belongs_to_the_kernel_that_reads_it() -> None:
    graph = parse(SHARED)
    copy, kernel = Kernel("triton", graph, ("y.0",)), Kernel("aten", graph, ("1",))
    assert compiled_shares(graph, layers_of(graph), (copy, kernel)) == ({1: 1.0}, {1: 1.0})


def test_a_library_call_is_its_operators_alone() -> None:
    text = """graph calls {
  input %x: float32[4,8]
  param %w: float32[8,8]
  %0 = mm(self=%x, mat2=%w) : float32[4,8] @proj
  %1 = relu(self=%0) : float32[4,8] @act
  return %1
}"""
    graph = parse(text)
    layers = layers_of(graph)
    assert [layer.name for layer in layers] == ["proj"]
    assert isinstance(layers[0], Layer)
    assert layers[0].type.shape == (4, 8)
