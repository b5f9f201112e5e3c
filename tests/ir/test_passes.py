"""Passes: liveness, dead code and common subexpressions, on small graphs by hand and on models."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from costmodel.ir import Graph, Ref, parse
from costmodel.ir.passes import drop_dead_code, live_after, merge_common_subexpressions

TEXT = """graph g {
  input %x: float32[4]
  input %unused: float32[4]
  param %w: float32[4]
  param %old: float32[4]
  %a = mul.Tensor(self=%x, other=%w) : float32[4] @first
  %b = mul.Tensor(self=%x, other=%w) : float32[4] @second
  %c = max.dim(self=%a, dim=0) : float32[], int64[]
  %d = add.Tensor(self=%b, other=%old) : float32[4]
  %e = mul.Tensor(self=%b, other=%c) : float32[4]
  return %e, %a
}"""


def test_what_is_live_after_each_operator() -> None:
    x, w, a, b, c, e, old = (Ref(name) for name in ("x", "w", "a", "b", "c", "e", "old"))
    assert live_after(parse(TEXT)) == (
        {x, w, old, a},
        {old, a, b},
        {old, a, b, c},  # the indices of the maximum are read by nobody
        {a, b, c},
        {e, a},
    )


def test_dead_code_goes_with_what_only_it_reads() -> None:
    kept = drop_dead_code(parse(TEXT))
    assert [op.name for op in kept.ops] == ["a", "b", "c", "e"]
    assert [value.name for value in kept.values] == ["x", "unused", "w"]
    assert kept.outputs == (Ref("e"), Ref("a"))


def test_equal_operators_become_one_wherever_they_stand() -> None:
    merged = merge_common_subexpressions(parse(TEXT))
    assert [op.name for op in merged.ops] == ["a", "c", "d", "e"]
    assert merged.ops[-1].refs() == (Ref("a"), Ref("c"))


def test_what_follows_from_equal_operators_is_equal() -> None:
    chain = """graph g {
  input %x: float32[4]
  %a = relu(self=%x) : float32[4]
  %b = relu(self=%x) : float32[4]
  %c = neg(self=%a) : float32[4]
  %d = neg(self=%b) : float32[4]
  return %c, %d
}"""
    merged = merge_common_subexpressions(parse(chain))
    assert [op.name for op in merged.ops] == ["a", "c"]
    assert merged.outputs == (Ref("c"), Ref("c"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("relu(self=%x) : float32[4]", "neg(self=%x) : float32[4]"),
        ("add.Scalar(self=%x, other=1) : float32[4]", "add.Scalar(self=%x, other=1.0) : float32[4]"),
        ("add.Scalar(self=%x, other=1) : float32[4]", "add.Scalar(self=%x, other=True) : float32[4]"),
        ("clone(self=%x) : float32[4]", "clone(self=%x) : float32[4] strided"),
        ("bernoulli.p(self=%x, p=0.5) : float32[4]", "bernoulli.p(self=%x, p=0.5) : float32[4]"),
    ],
)
def test_what_differs_or_draws_stays(one: str, other: str) -> None:
    graph = parse(f"graph g {{\n  input %x: float32[4]\n  %a = {one}\n  %b = {other}\n  return %a, %b\n}}")
    assert merge_common_subexpressions(graph) == graph


@pytest.mark.parametrize("model", ["densenet121", "swin_t", "googlenet"])
def test_models_keep_what_they_return(graph_of: Callable[[str], Graph], model: str) -> None:
    graph = graph_of(model)
    assert drop_dead_code(graph) == graph  # capture has dropped it already
    merged = merge_common_subexpressions(graph)
    assert merge_common_subexpressions(merged) == merged
    assert [merged.type_of(ref) for ref in merged.outputs] == [graph.type_of(ref) for ref in graph.outputs]
    assert live_after(graph)[-1] == frozenset(graph.outputs)
