"""Graphs of a partitioned pass, in the report and in warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.ir import Break, Graph, parse
from costmodel.ir.partition import Partition
from costmodel.report.types import GraphBreak
from costmodel.timeline.graphs import graph_warnings, graphs_of, is_compiled

GRAPH = parse("graph g {\n  input %x: float32[2]\n  %0 = relu(self=%x) : float32[2]\n  return %0\n}")
CUT = Break("cut", "print", "net", "net.py:3")
STOP = Break("stop", "control_flow", "net", "net.py:9")


def partitioned(*sections: int | None, compiled: int | None = None, **fields: object) -> Graph:
    entered = sum(number is not None for number in sections)
    partition = Partition(sections, entered if compiled is None else compiled, **fields)  # type: ignore[arg-type]
    return replace(GRAPH, partition=partition)


def test_a_pass_that_was_not_checked_has_no_number_of_graphs():
    found = graphs_of(replace(GRAPH, breaks=(CUT, STOP)))
    assert (found.count, found.checked, found.error) == (None, False, "")
    assert found.breaks == (GraphBreak("net.py:3", "print"),)  # a stop ends the capture, not a graph
    assert is_compiled(GRAPH)
    assert graph_warnings(GRAPH) == []


@pytest.mark.parametrize(
    ("graph", "count", "compiled"),
    [
        (partitioned(0), 1, True),
        (partitioned(0, None, 1), 2, True),
        (partitioned(0, None, 0), 2, True),
        (partitioned(None), 0, False),
        (partitioned(), 0, False),
        (partitioned(0, failure="no"), 1, False),
    ],
)
def test_a_checked_pass_enters_its_graphs(graph: Graph, count: int, compiled: bool):
    found = graphs_of(graph)
    assert (found.count, found.checked) == (count, True)
    assert is_compiled(graph) is compiled


def test_a_failure_is_the_only_warning():
    graph = partitioned(0, compiled=3, failure="no lowering")
    assert graphs_of(graph).error == "no lowering"
    assert graph_warnings(graph) == ["torch.compile fails on this model: no lowering"]


@pytest.mark.parametrize(("compiled", "warned"), [(1, False), (2, False), (3, True)])
def test_more_graphs_than_are_entered_were_compiled_again(compiled: int, warned: bool):
    """Two sections enter one graph, two others another."""
    found = graph_warnings(partitioned(0, None, 1, 0, compiled=compiled))
    assert ["compiled again" in text for text in found] == [True] * warned


def test_nothing_is_compiled_again_where_dynamo_gives_up():
    assert graph_warnings(partitioned(None, compiled=0)) == []
