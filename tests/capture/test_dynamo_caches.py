"""A check for graph breaks in a process that compiles models: it must not be noticed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import convert_frame

from costmodel.capture.dynamo import trace_with_dynamo


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


class Counted:
    """Backend that counts compilations, and whether a size was dynamic."""

    def __init__(self) -> None:
        self.graphs, self.dynamic = 0, False

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        self.dynamic |= any(isinstance(item, torch.SymInt) for item in inputs)
        return graph.forward


class Two(nn.Module):
    """Two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = self.one(x)
        print("between")
        return self.two(x)


def test_a_process_that_compiled_nothing_has_empty_caches_afterwards():
    trace_with_dynamo(Two(), (torch.randn(2, 4),))
    assert not convert_frame.output_codes.seen


def test_what_was_compiled_is_not_compiled_again():
    backend, module, x = Counted(), Two(), torch.randn(2, 4)
    compiled = torch.compile(module, backend=backend)
    compiled(x)
    assert backend.graphs == 2
    for size in range(2, 14):  # more than the limit of recompilations
        assert trace_with_dynamo(module, (torch.randn(size, 4),)).compiled == 2
    compiled(x)
    assert backend.graphs == 2
    compiled(torch.randn(40, 4))
    assert backend.graphs == 4


def test_a_check_neither_counts_as_a_recompilation_nor_makes_sizes_dynamic():
    backend, other = Counted(), Counted()
    torch.compile(nn.Linear(3, 3), backend=other)(torch.randn(2, 3))
    module = Two()
    for size in range(2, 12):  # more than the limit of recompilations
        trace_with_dynamo(module, (torch.randn(size, 4),))
    torch.compile(module, backend=backend)(torch.randn(20, 4))
    assert backend.graphs == 2
    assert not backend.dynamic
    assert other.graphs == 1
