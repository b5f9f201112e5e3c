"""Layers of a module: their names, prefixes, calls between them, and layers compiled one by one."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from costmodel.errors import MeasurementError
from costmodel.measurement.layer_sequence import Layers, compile_alone


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.act(self.linear(x)) + x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.body = nn.Sequential(Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.stem(x)).flatten(1)


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def test_leaves_are_modules_without_children_and_operators_between_them(net: Net):
    block = ("linear", "act", "add", "act#2")
    names = Layers(net, "leaf").names
    assert names[0] == "stem"
    assert names[1:5] == tuple(f"body.0.{part}" if "add" not in part else part for part in block)
    assert names[-1] == "flatten"
    assert len(names) == 1 + 2 * len(block) + 1


def test_blocks_are_children_with_those_of_a_sequential_in_its_place(net: Net):
    assert Layers(net, "block").names == ("stem", "body.0", "body.1", "flatten")


def test_a_prefix_ends_with_the_result_of_its_last_layer(net: Net):
    x = torch.randn(2, 3)
    layers = Layers(net, "block")
    assert torch.equal(layers.prefix(1)(x), net.stem(x))
    assert torch.equal(layers.prefix(2)(x), net.body[0](net.stem(x)))
    assert torch.equal(layers.prefix(4)(x), net(x))


@pytest.mark.parametrize("count", [0, 5])
def test_a_prefix_of_other_lengths_is_refused(net: Net, count: int):
    with pytest.raises(MeasurementError, match="1 to 4 layers"):
        Layers(net, "block").prefix(count)


def test_calls_come_before_the_first_layer_and_after_each(net: Net):
    made: list[str] = []

    def first() -> None:
        made.append("first")

    def second() -> None:
        made.append("second")

    x = torch.randn(2, 3)
    assert torch.equal(Layers(net, "block").with_calls((first, second))(x), net(x))
    assert made == ["first", "second"] * 5


def test_only_chosen_layers_are_compiled(net: Net, monkeypatch: pytest.MonkeyPatch):
    graphs: list[int] = []

    def backend(graph, _inputs):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    x = torch.randn(2, 3)
    module = Layers(net, "block").with_calls(compiled=("body.0", "flatten"))
    with torch.no_grad():
        assert torch.allclose(module(x), net(x))
        module(x)
    assert len(graphs) == 2


def test_layers_of_one_class_have_code_of_their_own():
    linears = [compile_alone(nn.Linear(4, 4)) for _ in range(2)]
    codes = [linear._torchdynamo_orig_callable.__code__ for linear in linears]
    assert codes[0] is not codes[1]


def test_what_cannot_be_traced_is_refused():
    with pytest.raises(MeasurementError, match="Branching is no sequence of layers"):
        Layers(Branching())


def test_a_module_without_layers_is_refused():
    with pytest.raises(MeasurementError, match="has no layers"):
        Layers(nn.Sequential(), "block")


def test_an_unknown_granularity_is_refused(net: Net):
    with pytest.raises(MeasurementError, match="choose leaf or block"):
        Layers(net, "operator")
