"""Which compiled graphs reduce-overhead cannot replay: those that write into an input of the call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from costmodel.capture.with_partition import capture_with_partition
from costmodel.inductor.cuda_graphs import mutated_inputs


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
    assert mutated_inputs(graph) == expected


def test_a_write_into_the_result_of_an_eager_section():
    """The result has another address in each call."""
    graph = capture_with_partition(Writes("between").eval(), (torch.ones(3, 4),), "m")
    assert graph.partition is not None
    assert graph.partition.sections == (0, None, 1)
    assert list(mutated_inputs(graph)) == [2]
