"""Graphs in words, and values that JSON can hold."""

from __future__ import annotations

import math

import pytest

from costmodel.report.types import GraphBreak, Graphs, plain

BREAK = GraphBreak("net.py:3", "print")


@pytest.mark.parametrize(
    ("graphs", "words"),
    [
        (Graphs(), "graph breaks not checked"),
        (Graphs(1, checked=True), "one graph (checked)"),
        (Graphs(1, checked=True, breaks=(BREAK,)), "1 graph"),
        (Graphs(2, checked=True, breaks=(BREAK,)), "2 graphs"),
        (Graphs(0, checked=True, breaks=(BREAK,)), "0 graphs"),
        (Graphs(2, error="no"), "torch.compile fails"),
    ],
)
def test_the_number_of_graphs_in_words(graphs: Graphs, words: str) -> None:
    assert graphs.summary == words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (math.nan, None),
        (-math.inf, None),
        ((1, (2.0, math.inf)), [1, [2.0, None]]),
        ({"a\ud800": [math.nan]}, {"a\\ud800": [None]}),
        (None, None),
        (True, True),
        ("plain", "plain"),
    ],
)
def test_a_plain_value_is_one_that_json_can_hold(value: object, expected: object) -> None:
    assert plain(value) == expected
