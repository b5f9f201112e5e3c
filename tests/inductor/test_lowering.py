"""Values that are realized, on both sides of Inductor's thresholds."""

from __future__ import annotations

import pytest

from costmodel.device import ASSUMED_GPU
from costmodel.inductor.compilation import Compilation, Target
from costmodel.inductor.lowering import Lowering, lower, most_reads
from costmodel.ir import parse

KIND = "float32[64]"


def lowered(*lines: str, inputs: int = 1, output: str, on_cpu: bool = False) -> Lowering:
    values = [f"input %x{index}: {KIND}" for index in range(inputs)]
    graph = parse("\n  ".join(["graph g {", *values, *lines, f"return {output}"]) + "\n}")
    return lower(Compilation(graph, Target(on_cpu, ASSUMED_GPU.multiprocessors)))


def made(lowering: Lowering) -> list[str]:
    return [name for node in lowering.nodes for name in node.makes]


def total(count: int) -> list[str]:
    """Sum of so many inputs, under the name of the last addition: s1, s2, ..."""
    return [
        f"%s{i} = add.Tensor(self=%{f's{i - 1}' if i > 1 else 'x0'}, other=%x{i}) : {KIND}" for i in range(1, count)
    ]


def test_users_decide_how_much_may_be_read():
    graph = parse(f"graph g {{\n  input %x: {KIND}\n  %0 = exp(self=%x) : {KIND}\n  return %0\n}}")
    (op,) = graph.ops
    assert [most_reads([op] * count) for count in (0, 1, 2, 3)] == [4, 8, 4, 4]


@pytest.mark.parametrize(("count", "realized"), [(8, False), (9, True)])
def test_a_sum_of_more_than_eight_tensors_is_written(count: int, realized: bool):
    found = lowered(*total(count), f"%e = exp(self=%s{count - 1}) : {KIND}", inputs=count, output="%e")
    assert made(found) == ([f"s{count - 1}"] if realized else []) + ["e"]


@pytest.mark.parametrize(("count", "realized"), [(4, False), (5, True)])
def test_a_sum_of_more_than_four_tensors_is_written_where_two_read_it(count: int, realized: bool):
    last = f"s{count - 1}"
    readers = (f"%e = exp(self=%{last}) : {KIND}", f"%n = neg(self=%{last}) : {KIND}")
    found = lowered(*total(count), *readers, inputs=count, output="%e, %n")
    assert made(found) == ([last] if realized else []) + ["e", "n"]


@pytest.mark.parametrize(("count", "realized"), [(10, False), (11, True)])
def test_more_than_thirty_operations_are_written(count: int, realized: bool):
    """An exponential counts as three."""
    lines = [f"%{i} = exp(self=%{i - 1 if i else 'x0'}) : {KIND}" for i in range(count)]
    found = lowered(
        *lines, f"%v = view(self=%{count - 1}, size=[64]) : {KIND}", f"%n = neg(self=%v) : {KIND}", output="%n"
    )
    assert made(found) == ([str(count - 1)] if realized else []) + ["n"]


def test_what_is_computed_anew_is_in_each_kernel_that_reads_it():
    found = lowered(
        f"%0 = exp(self=%x0) : {KIND}", f"%1 = neg(self=%0) : {KIND}", f"%2 = abs(self=%0) : {KIND}", output="%1, %2"
    )
    assert [node.ops for node in found.nodes] == [("0", "1"), ("0", "2")]
    assert all(node.reads == frozenset({("x0", "")}) for node in found.nodes)
    assert found.returned() == {"1", "2"}


def test_a_cpu_writes_a_costly_result_that_two_read():
    lines = (f"%0 = exp(self=%x0) : {KIND}", f"%1 = neg(self=%0) : {KIND}", f"%2 = abs(self=%0) : {KIND}")
    assert made(lowered(*lines, output="%1, %2", on_cpu=True)) == ["0", "1", "2"]
    assert made(lowered(*lines[:2], output="%1", on_cpu=True)) == ["1"]


def test_a_library_call_writes_what_it_reads_and_itself():
    lines = (
        "%a = view(self=%x0, size=[8, 8]) : float32[8,8]",
        "%b = exp(self=%a) : float32[8,8]",
        "%m = mm(self=%b, mat2=%a) : float32[8,8]",
        "%r = relu(self=%m) : float32[8,8]",
    )
    found = lowered(*lines, output="%r")
    assert made(found) == ["b", "m", "r"]
    assert [node.extern for node in found.nodes] == [False, True, False]
    assert {name for name, _ in found.nodes[1].reads} == {"b", "x0"}
    assert found.is_realized_before("b", 3)
    assert not found.is_realized_before("b", 2)
    assert found.made_by("m") == ["m"]
    assert found.made_by("x0") == []


def test_a_view_in_another_order_is_read_in_that_order():
    lines = ("%a = view(self=%x0, size=[8, 8]) : float32[8,8]", "%t = t(self=%a) : float32[8,8] strided")
    found = lowered(*lines, "%e = add.Tensor(self=%t, other=%a) : float32[8,8]", output="%e")
    (node,) = found.nodes
    assert sorted(order for _, order in node.reads) == ["", "/t[]"]


def test_a_reduction_has_its_results_and_elements():
    found = lowered(
        "%a = view(self=%x0, size=[4, 16]) : float32[4,16]",
        "%s = sum.dim_IntList(self=%a, dim=[1]) : float32[4]",
        output="%s",
    )
    (node,) = found.nodes
    assert (node.outer, node.inner, node.domain, node.launches) == (4, 16, 64, 1)
