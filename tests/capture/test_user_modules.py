"""Graphs of forward passes as users write them, against torch.compile itself."""

from __future__ import annotations

import pytest
import torch

from costmodel.capture.with_partition import capture_with_partition
from tests.support.broken_modules import run_by_torch
from tests.support.user_modules import PASSES, UserModule

IMAGE = torch.linspace(-1.0, 2.0, 32).reshape(4, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_graphs_are_those_of_torch_compile(name: str):
    expected, compiled = run_by_torch(UserModule(PASSES[name]).eval(), IMAGE)
    module = UserModule(PASSES[name]).eval()
    graph = capture_with_partition(module, (IMAGE.clone(),), name)
    assert not graph.partial
    assert graph.partition is not None
    assert (graph.partition.failure, graph.partition.entered, graph.partition.compiled) == (
        "",
        len(expected),
        compiled,
    )
    assert bool(graph.breaks) or len(expected) == 1  # several graphs, or none, have a reason
    assert all(item.source.startswith(("tests/support/user_modules.py:", "user_modules.py:")) for item in graph.breaks)
