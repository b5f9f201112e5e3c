"""Compile time: counts by hand, a sum of counts times costs, never nothing, and its interval."""

from __future__ import annotations

import math

import pytest

from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.compile_time import LEAST_S, compile_counts, compile_us, with_interval

RELU = parse("graph _ {\n  input %a0: float32[4]\n  %0 = relu(self=%a0) : float32[4]\n  return %0\n}")
EXP = parse("graph _ {\n  input %a0: float32[4]\n  %0 = exp(self=%a0) : float32[4]\n  return %0\n}")


def test_equal_kernels_are_generated_once_and_traced_each():
    kernels = [Kernel("triton", RELU, ("a",)), Kernel("triton", RELU, ("b",)), Kernel("triton", EXP, ("c.1",))]
    counts = compile_counts([*kernels, Kernel("aten", RELU, ("c.2",))], parameters=3, graphs=3)
    assert counts == {
        "operator": 3,
        "distinct_kernel": 2,
        "fused_operator": 2,
        "grouped_convolution": 0,
        "parameter": 3,
        "further_graph": 2,
        "start": 1.0,
    }


def test_equal_grouped_convolutions_count_once_and_parameters_are_those_that_kernels_read():
    text = (
        "graph _ {{\n  input %x: float32[1,8,4,4]\n  param %w: float32[8,{},1,1]\n"
        "  %0 = convolution(input=%x, weight=%w, groups={}) : float32[1,8,4,4]\n  return %0\n}}"
    )
    grouped, dense = parse(text.format(1, 8)), parse(text.format(8, 1))
    kernels = [Kernel("aten", graph, (str(place),)) for place, graph in enumerate((grouped, grouped, dense))]
    counts = compile_counts(kernels)
    assert (counts["grouped_convolution"], counts["parameter"]) == (1, 3)


@pytest.mark.parametrize(
    ("start", "expected_s"),
    [
        (1e6, 4 * 0.01 + 2 * 0.02 + 1.0),
        (-80.0, LEAST_S),  # 0.04 + 0.04 s is less
        (-1e9, LEAST_S),  # costs fitted to large models, far below them
    ],
)
def test_compile_time_by_hand(start: float, expected_s: float):
    costs = {"operator": 1e4, "distinct_kernel": 2e4, "start": start, "of another release": 5.0}
    counts = {"operator": 4, "distinct_kernel": 2, "start": 1.0, "kernel": 7}
    assert compile_us(counts, costs) == pytest.approx(expected_s * 1e6)


def test_an_interval_is_of_the_logarithm():
    found = with_interval(12e6, math.log(1.5))
    assert (found.s, found.low, found.high) == pytest.approx((12.0, 8.0, 18.0))
