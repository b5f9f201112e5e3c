"""Operators of optimizers against those that torch's eager multi-tensor implementations dispatch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from costmodel.errors import RequestError
from costmodel.ir import TensorType
from costmodel.kernels.eager_dispatch import eager_kernels
from costmodel.kernels.optimizers import MOMENTUM, OPTIMIZERS, optimizer_graph

MADE: dict[str, Any] = {
    "sgd": lambda params: torch.optim.SGD(params, foreach=True),
    "momentum": lambda params: torch.optim.SGD(params, momentum=MOMENTUM, foreach=True),
    "adam": lambda params: torch.optim.Adam(params, foreach=True),
    "adamw": lambda params: torch.optim.AdamW(params, foreach=True),
}


class MultiTensor(TorchDispatchMode):
    """Multi-tensor operators that torch dispatches on tensors that are no counts of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_foreach_" in func._schema.name and args[0][0].dim() > 0:
            self.names.append(func._schema.name.removeprefix("aten::").removesuffix("_"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_has_the_operators_that_torch_dispatches(name: str):
    parameters = [torch.nn.Parameter(torch.ones(4, 3)), torch.nn.Parameter(torch.ones(5))]
    optimizer = MADE[name](parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()  # makes the state
    with MultiTensor() as watch:
        optimizer.step()
    graph = optimizer_graph([TensorType("float32", (4, 3)), TensorType("float32", (5,))], name).verify()
    assert [op.base for op in graph.ops] == watch.names


def test_traffic_of_sgd_is_three_times_the_parameters():
    (kernel,) = eager_kernels(optimizer_graph([TensorType("float32", (1000,)), TensorType("float32", (24,))], "sgd"))
    assert kernel.traffic_bytes == 3 * 4 * 1024  # reads parameters and gradients, writes parameters


def test_parameters_of_two_precisions_have_calls_of_their_own():
    graph = optimizer_graph(
        [TensorType("float32", (8,)), TensorType("float16", (8,)), TensorType("float32", (2,))], "sgd"
    )
    assert [len(op.types) for op in graph.verify().ops] == [2, 1]


def test_nothing_to_update_is_no_operator():
    assert optimizer_graph([], "adam").ops == ()


def test_an_optimizer_without_a_rule_is_one_line():
    with pytest.raises(RequestError, match="unknown optimizer 'lion'; choose one of sgd, momentum, adam, adamw"):
        optimizer_graph([], "lion")
