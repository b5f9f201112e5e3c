"""Values that a graph frees, after dead code is dropped."""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Graph, Ref, parse
from costmodel.ir.passes import drop_dead_code

TEXT = """graph g {
  input %x: float32[4]
  %a = relu(self=%x) : float32[4]
  %b = neg(self=%a) : float32[4]
  %dead = exp(self=%a) : float32[4]
  %last = exp(self=%dead) : float32[4]
  %c = neg(self=%b) : float32[4]
  %end = exp(self=%c) : float32[4]
  return %c
}"""


def freeing(graph: Graph, **freed: str) -> Graph:
    """The graph, in which operators free values after they have run."""
    ops = tuple(replace(op, frees=(Ref(freed[op.name]),)) if op.name in freed else op for op in graph.ops)
    return replace(graph, ops=ops)


def test_what_dead_operators_free_is_freed_by_the_live_one_before_them():
    kept = drop_dead_code(freeing(parse(TEXT), b="x", dead="a", last="dead", c="b"))
    assert [(op.name, op.frees) for op in kept.ops] == [
        ("a", ()),
        ("b", (Ref("x"), Ref("a"), Ref("dead"))),
        ("c", (Ref("b"),)),
    ]


def test_what_a_dead_last_operator_frees_is_freed_by_the_last_live_one():
    kept = drop_dead_code(freeing(parse(TEXT), end="b"))
    assert [op.frees for op in kept.ops] == [(), (), (Ref("b"),)]
