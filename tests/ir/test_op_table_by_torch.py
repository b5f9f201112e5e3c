"""Rows of activations held to the decompositions that Inductor takes from torch."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import fx

from costmodel.ir import operators


@pytest.fixture(scope="module")
def decomposed() -> Callable[[str], fx.Graph]:
    """The graph that torch decomposes an activation of one tensor to."""
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    table = select_decomp_table()

    def make(name: str) -> fx.Graph:
        function = getattr(torch.ops.aten, name)

        def call(x: torch.Tensor) -> torch.Tensor:
            return function(x)

        return make_fx(call, decomposition_table=table)(torch.zeros(2, 3)).graph

    make("relu")  # torch gets itself ready in the first call
    return make


def calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem]


def reads(graph: fx.Graph) -> int:
    """How often calls read the input."""
    (source,) = (node for node in graph.nodes if node.op == "placeholder")
    return sum(source in node.all_input_nodes for node in calls(graph))


@pytest.mark.parametrize("name", ["hardsigmoid", "hardswish", "silu", "gelu"])
def test_nodes_are_those_of_the_decomposition(decomposed: Callable[[str], fx.Graph], name: str) -> None:
    assert operators.TABLE[name].fx_nodes == len(calls(decomposed(name)))


@pytest.mark.parametrize(
    "name",
    [
        *("hardsigmoid", "hardswish", "silu", "gelu", "elu", "celu", "selu", "softplus", "mish", "leaky_relu"),
        *("hardtanh", "relu", "sigmoid", "tanh", "exp", "log"),
    ],
)
def test_an_input_is_read_once_or_several_times(decomposed: Callable[[str], fx.Graph], name: str) -> None:
    assert operators.TABLE[name].uses == min(2, reads(decomposed(name)))
