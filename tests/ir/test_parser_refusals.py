"""Texts that are almost graphs."""

from __future__ import annotations

import pytest

from costmodel.errors import GraphError
from costmodel.ir import parse
from costmodel.ir.parser import parse_types

GRAPH = """graph g {{
  input %x: {input}
  %a = relu(self=%x) : {result}{module}
  return %a{more}
}}"""


def graph(input: str = "float32[4]", result: str = "float32[4]", module: str = "", more: str = "") -> str:  # noqa: A002
    return GRAPH.format(input=input, result=result, module=module, more=more)


@pytest.mark.parametrize(
    "text",
    [
        "float32[4] junk",
        "junk float32[4]",
        "float32[4]junk",
        "float32[4], junk",
        "float32[4] float32[4]",
        "float32[4],",
        "float32[4] nhwc strided",
        "float32[4",
        "float32[4]]",
        "float32[4,]",
        "float32[04]",
        "float32",
    ],
)
def test_a_type_with_anything_else_is_refused(text: str):
    with pytest.raises(GraphError, match="cannot parse the type"):
        parse_types(text)
    for bad in (graph(input=text), graph(result=text)):
        with pytest.raises(GraphError):
            parse(bad)


@pytest.mark.parametrize("bad", [graph(module=" @here there"), graph(more=" junk"), graph(more=", %b"), graph() + "}"])
def test_a_line_with_anything_else_is_refused(bad: str):
    with pytest.raises(GraphError):
        parse(bad)


def test_the_text_that_they_are_made_of_is_a_graph():
    assert parse(graph(module=" @here")).ops[0].module == "here"
