"""Least traffic of kernels, by hand."""

from __future__ import annotations

import pytest

from costmodel.ir import Ref, parse
from costmodel.kernels.traffic import needed_elements, traffic_bytes


def graph_of(*lines: str, outputs: str = "%0"):
    text = "\n  ".join(["graph _ {", *lines, f"return {outputs}"])
    return parse(text + "\n}")


def test_inputs_and_outputs_count_once():
    graph = graph_of("input %x: float32[6]", "%0 = mul.Tensor(self=%x, other=%x) : float32[6]")
    assert traffic_bytes(graph) == 24 + 24
    assert needed_elements(graph) == {Ref("0"): 6.0, Ref("x"): 6.0}


def test_an_input_that_no_output_needs_is_not_read():
    graph = graph_of(
        "input %x: float32[6]",
        "input %y: float32[100]",
        "%0 = neg(self=%x) : float32[6]",
        "%1 = neg(self=%y) : float32[100]",
    )
    assert traffic_bytes(graph) == 24 + 24


def test_a_smaller_operand_is_read_whole_and_one_of_the_same_size_in_part():
    """A third of the sum of 6 x 3 elements is returned: a third of the operand, and all of the row added to it."""
    graph = graph_of(
        "input %x: float16[6,3]",
        "param %b: float16[3]",
        "%0 = add.Tensor(self=%x, other=%b) : float16[6,3]",
        "%1 = slice.Tensor(self=%0, dim=0, start=0, end=2) : float16[2,3]",
        outputs="%1",
    )
    assert needed_elements(graph)[Ref("x")] == pytest.approx(6.0)
    assert traffic_bytes(graph) == 2 * (6 + 3 + 6)


def test_a_library_call_reads_all_of_its_operands():
    graph = graph_of(
        "input %x: float32[6,4]",
        "param %w: float32[4,5]",
        "%0 = mm(self=%x, mat2=%w) : float32[6,5]",
        "%1 = slice.Tensor(self=%0, dim=0, start=0, end=1) : float32[1,5]",
        outputs="%1",
    )
    assert traffic_bytes(graph) == 4 * (24 + 20 + 5)


def test_views_read_parts_of_their_own_and_never_more_than_all():
    lines = ["input %x: float32[8]"]
    lines += [
        f"%{i} = slice.Tensor(self=%x, dim=0, start={a}, end={b}) : float32[{b - a}]"
        for i, (a, b) in enumerate([(0, 3), (5, 8)])
    ]
    graph = graph_of(*lines, outputs="%0, %1")
    assert needed_elements(graph)[Ref("x")] == 6.0
    lines += ["%2 = slice.Tensor(self=%x, dim=0, start=0, end=7) : float32[7]"]
    assert needed_elements(graph_of(*lines, outputs="%0, %1, %2"))[Ref("x")] == 8.0


def test_operators_that_compute_read_the_same_part():
    graph = graph_of(
        "input %x: float32[8]",
        "%0 = neg(self=%x) : float32[8]",
        "%1 = exp(self=%x) : float32[8]",
        outputs="%0, %1",
    )
    assert traffic_bytes(graph) == 4 * (8 + 8 + 8)
