"""Compilations: analyses are shared between passes as long as the graph is the same, and never between graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.device import ASSUMED_GPU
from costmodel.inductor import lowering
from costmodel.inductor.compilation import Compilation, Target
from costmodel.inductor.pipeline import PASSES, compile_graph, compiled_kernels
from costmodel.ir import Graph


def graph_of(module: nn.Module) -> Graph:
    return capture(module.eval(), (torch.empty(8, 3, 32, 32, device="meta"),))


def block() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 128, 3))


def test_a_graph_is_lowered_once(monkeypatch: pytest.MonkeyPatch):
    """The pass that looks for contiguous values and the scheduler use one lowering."""
    lowered: list[Graph] = []
    prepare = lowering.Lowering.__init__

    def counted(self: lowering.Lowering, compilation: Compilation) -> None:
        lowered.append(compilation.graph)
        prepare(self, compilation)

    monkeypatch.setattr(lowering.Lowering, "__init__", counted)
    compilation = compile_graph(graph_of(block()))
    assert compilation.channels_last is not None
    assert compiled_kernels(graph_of(block()))
    assert len(lowered) == 2  # one in each of the two compilations


def test_an_analysis_is_made_once_a_graph():
    graphs: list[Graph] = []

    def count_ops(compilation: Compilation) -> int:
        graphs.append(compilation.graph)
        return len(compilation.graph.ops)

    first = Compilation(graph_of(block()), Target(on_cpu=False, multiprocessors=ASSUMED_GPU.multiprocessors))
    assert first.analysis(count_ops) == first.analysis(count_ops) == len(first.graph.ops)
    second = first.with_ops(first.graph.ops[:1])
    assert second.analysis(count_ops) == 1
    assert graphs == [first.graph, second.graph]


def test_the_same_operators_are_the_same_compilation():
    compilation = Compilation(graph_of(block()), Target(on_cpu=False, multiprocessors=ASSUMED_GPU.multiprocessors))
    ops = compilation.graph.ops
    assert compilation.with_ops(list(ops)) is compilation
    assert compilation.with_graph(compilation.graph) is compilation
    assert compilation.with_ops([replace(ops[0], module="other"), *ops[1:]]) is not compilation


@pytest.mark.parametrize("on_cpu", [False, True])
def test_every_pass_has_a_name_and_leaves_its_argument(on_cpu: bool):
    names = [apply.__name__ for apply in PASSES]
    assert len(set(names)) == len(names)
    compilation = Compilation(graph_of(block()), Target(on_cpu, ASSUMED_GPU.multiprocessors))
    for apply in PASSES:
        before = str(compilation.graph)
        after = apply(compilation)
        assert str(compilation.graph) == before
        after.graph.verify()
        compilation = after
