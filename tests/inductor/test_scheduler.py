"""Fusion of lowered nodes, by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from costmodel.inductor.lowering import Node
from costmodel.inductor.scheduler import DISTANCE_TO_FUSE, fuse


def node(name: str, *reads: str, outer: int = 100, order: str = "", **fields: object) -> Node:
    """A node that makes a buffer of its name; reads in another order have it."""
    return Node((name,), frozenset((read, order) for read in reads), (name,), outer, **fields)  # type: ignore[arg-type]


def fused(*nodes: Node, writers: Mapping[str, tuple[int, ...]] | None = None) -> list[str]:
    """Names of the operators of each kernel."""
    known = {made.makes[0]: (index,) for index, made in enumerate(nodes)}
    return [" ".join(kernel.ops) for kernel in fuse(nodes, known | dict(writers or {}))]


def test_loops_over_one_domain_join_what_they_read():
    assert fused(node("a", "x"), node("b", "a"), node("c", "b")) == ["a b c"]


def test_loops_over_other_domains_stay_apart():
    assert fused(node("a", "x"), node("b", "a", outer=99)) == ["a", "b"]


@pytest.mark.parametrize("fields", [{"extern": True}, {"launches": 2}])
@pytest.mark.parametrize("first", [True, False])
def test_library_calls_and_kernels_in_levels_join_nothing(fields: dict[str, object], first: bool):
    one, other = (fields if first else {}), ({} if first else fields)
    assert fused(node("a", "x", **one), node("b", "a", **other)) == ["a", "b"]


def test_what_reads_in_another_order_comes_behind():
    assert fused(node("a", "x"), node("b", "a", order="/t[]")) == ["a", "b"]
    assert fused(node("a", "x"), node("b", "x"), node("c", "a", order="/t[]")) == ["a b", "c"]


def test_nodes_that_read_one_buffer_alike_are_fused():
    assert fused(node("a", "x"), node("b", "x")) == ["a b"]
    assert fused(node("a", "x"), node("b", "y")) == ["a", "b"]
    assert fused(node("a", "x"), node("b", "x", order="/t[]")) == ["a", "b"]


@pytest.mark.parametrize(("between", "kernels"), [(DISTANCE_TO_FUSE - 1, 1), (DISTANCE_TO_FUSE, 2)])
def test_siblings_are_fused_across_at_most_sixty_four_nodes(between: int, kernels: int):
    assert DISTANCE_TO_FUSE == 64
    others = [node(f"o{index}", f"y{index}", outer=1 + index) for index in range(between)]
    found = fused(node("a", "x", outer=7777), *others, node("b", "x", outer=7777))
    assert len(found) == between + kernels


def test_a_reduction_takes_along_what_runs_over_its_domain_or_its_results():
    total = node("s", "a", outer=10, inner=10)
    assert fused(node("a", "x"), total) == ["a s"]
    assert fused(node("a", "x"), total, node("b", "s", outer=10)) == ["a s b"]
    assert fused(node("a", "x"), total, node("b", "a", "s")) == ["a s b"]
    assert fused(node("a", "x"), total, node("b", "s", outer=20)) == ["a s", "b"]


def test_two_reductions_are_one_kernel_over_equal_loops_only():
    first = node("s", "x", outer=10, inner=10)
    assert fused(first, node("t", "x", outer=10, inner=10)) == ["s t"]
    assert fused(first, node("t", "x", outer=10, inner=5)) == ["s", "t"]
    assert fused(first, node("t", "x", outer=5, inner=20)) == ["s", "t"]


def test_a_reduction_across_memory_joins_no_loops_over_its_domain():
    total = node("s", "a", outer=10, inner=10, crosswise=True)
    assert fused(node("a", "x"), total) == ["a", "s"]
    assert fused(total, node("b", "s", outer=10)) == ["s b"]


def test_split_reductions_join_what_scatters_do_not():
    total = node("s", "x", outer=10, inner=10, launches=2)
    nodes, writers = (total, node("t", "x", outer=10, inner=10, launches=2), node("b", "s", outer=10)), {"s": (0,)}
    assert [" ".join(kernel.ops) for kernel in fuse(nodes, writers, joins_split=True)] == ["s t b"]
    scatter = (node("s", "x", launches=2), node("b", "s"))
    assert [" ".join(kernel.ops) for kernel in fuse(scatter, writers, joins_split=True)] == ["s", "b"]


def test_nothing_is_fused_around_a_library_call_between():
    """c reads a, and b, a library call of a: c cannot run before b, nor a behind it."""
    assert fused(node("a", "x"), node("b", "a", extern=True), node("c", "a", "b")) == ["a", "b", "c"]


def test_a_node_that_joins_later_waits_for_what_it_reads():
    """d joins a, its sibling, and waits for the library call, and so does e, which reads a."""
    nodes = (node("a", "x"), node("b", "y", extern=True), node("d", "x", "b"), node("e", "a", outer=5))
    assert fused(*nodes) == ["b", "a d", "e"]


def test_the_latest_group_is_joined():
    nodes = (node("a", "x", outer=7), node("b", "y"), node("c", "z"), node("d", "b", "c"))
    assert fused(*nodes) == ["a", "b", "c d"]


def test_a_buffer_of_several_writers_is_behind_each():
    nodes = (node("a", "x"), node("b", "y", outer=5), node("c", "joined", outer=7))
    assert fused(*nodes, writers={"joined": (0, 1)}) == ["a", "b", "c"]
    kernels: Sequence[Node] = fuse(nodes[:2], {})
    assert [kernel.makes for kernel in kernels] == [("a",), ("b",)]


def test_a_kernel_reads_and_makes_what_its_nodes_do():
    (kernel,) = fuse(
        [node("a", "x"), node("s", "a", "w", outer=10, inner=10), node("b", "s", outer=10)],
        {"a": (0,), "s": (1,), "b": (2,)},
    )
    assert kernel.makes == ("a", "s", "b")
    assert {name for name, _ in kernel.reads} == {"x", "a", "w", "s"}
    assert (kernel.outer, kernel.inner, kernel.domain) == (10, 10, 100)
