"""Modules of a model as they are recorded at capture."""

from __future__ import annotations

import torch
from torch import nn

from costmodel.capture.module_facts import facts_of
from costmodel.capture.trace import capture
from costmodel.ir import ModuleFacts


def net() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    net[2].weight = net[0].weight  # type: ignore[union-attr]
    return net.eval()


def test_a_shared_parameter_counts_once() -> None:
    assert facts_of(net()) == (
        ModuleFacts("", "Sequential", 0),
        ModuleFacts("0", "Linear", 12),
        ModuleFacts("1", "ReLU", 0),
        ModuleFacts("2", "Linear", 3),  # its bias
    )


def test_names_are_written_as_in_operators() -> None:
    model = nn.Module()
    model.add_module("a b", nn.Linear(1, 1))
    assert [facts.name for facts in facts_of(model)] == ["", "a_b"]


def test_a_graph_knows_its_modules_and_its_text_does_not() -> None:
    graph = capture(net(), (torch.empty(2, 3),), "net")
    assert graph.modules == facts_of(net())
    assert "Sequential" not in str(graph)
