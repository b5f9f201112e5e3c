"""Which compiled graphs reduce-overhead cannot replay: those that write into an input of the call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.with_partition import capture_with_partition
from costmodel.inductor.cuda_graphs import (
    Mutation,
    copied_each_call,
    mutated_inputs,
    outside_cuda_graphs,
    unsafe_ops,
)
from costmodel.timeline.graphs import graph_warnings


class Writes(nn.Module):
    """Writes into one of its tensors in place, after and before other operators."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        made = x * self.weight
        if self.target == "between":
            made = outside(made)
        into = {"input": x, "view": x[0], "buffer": self.mean, "made": made, "between": made}.get(self.target)
        if into is not None:
            into.add_(1.0)
        return made + x + self.mean


@torch.compiler.disable
def outside(x):
    return x * 2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("none", {}),
        ("input", {0: ("x", "")}),
        ("view", {0: ("x", "")}),
        ("buffer", {}),  # keeps its address
        ("made", {}),  # inside the graph
    ],
)
def test_writes_into_inputs(target: str, expected: dict[int, tuple[str, str]]):
    graph = capture_with_partition(Writes(target).eval(), (torch.ones(3, 4),), "m")
    found = {section: (item.tensor, item.module) for section, item in mutated_inputs(graph).items()}
    assert found == expected


def test_a_write_into_the_result_of_an_eager_section():
    """The result has another address in each call."""
    graph = capture_with_partition(Writes("between").eval(), (torch.ones(3, 4),), "m")
    assert graph.partition is not None
    assert graph.partition.sections == (0, None, 1)
    assert list(mutated_inputs(graph)) == [2]


class Divides(nn.Module):
    """Layers around a statement that no CUDA graph can hold, or that looks like one."""

    def __init__(self, statement: str) -> None:
        super().__init__()
        self.statement = statement
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.mean = torch.zeros(4)

    def forward(self, x):
        y = self.one(x)
        if self.statement == "row":
            y[y[:, 0] > 0] = x[0]
        elif self.statement == "number":
            y[y[:, 0] > 0] = 1.0
        elif self.statement == "places":
            y[torch.tensor([0, 1])] = x[0]
        elif self.statement == "copy":
            y = (y.cpu() * 2).to(x.device)
        elif self.statement == "attribute":
            y = y - self.mean.to(x.device)
        elif self.statement == "made":
            y = y + torch.arange(4).to(x.device)
        return self.two(y)


@pytest.mark.parametrize(
    ("statement", "bases", "copies"),
    [
        ("row", ["index_put"], ()),
        ("number", [], ()),  # Inductor makes it a masked_fill
        ("places", [], ()),
        ("copy", ["_local_scalar_dense"], ()),
        ("attribute", [], ("",)),
        ("made", [], ()),  # Inductor makes it on the GPU
    ],
)
def test_operators_that_divide_a_cuda_graph(statement: str, bases: list[str], copies: tuple[str, ...]):
    graph = capture_with_partition(Divides(statement).eval(), (torch.rand(3, 4),), "m")
    assert graph.partition is not None
    assert graph.partition.is_whole
    made = {op.name: op for op in graph.ops}
    assert [made[name].base for name in unsafe_ops(graph)] == bases
    assert copied_each_call(graph) == copies
    assert sum("CUDA graph is divided" in text for text in graph_warnings(graph)) == len(bases)
    assert sum("register it as a buffer" in text for text in graph_warnings(graph)) == len(copies)


KERNELS = [("a",), ("b", "c"), ("unsafe",), ("d",), ("e",)]


@pytest.mark.parametrize(
    ("unsafe", "written", "alone"),
    [
        ([], None, set()),
        (["unsafe"], None, {2}),
        ([], "c", {0, 1, 2, 3, 4}),  # one graph, which writes
        (["unsafe"], "c", {0, 1, 2}),
        (["unsafe"], "e", {2, 3, 4}),
        (["unsafe"], "removed", {0, 1, 2, 3, 4}),
    ],
)
def test_kernels_outside_cuda_graphs(unsafe: list[str], written: str | None, alone: set[int]):
    mutation = Mutation(written, "x", "") if written else None
    assert outside_cuda_graphs(KERNELS, unsafe, mutation) == alone
