"""Compile time: counts by hand, a sum of counts times costs, never nothing, and its interval."""

from __future__ import annotations

import math

import pytest

from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.compile_time import LEAST_S, compile_counts, compile_us, with_interval

RELU = parse("graph _ {\n  input %a0: float32[4]\n  %0 = relu(self=%a0) : float32[4]\n  return %0\n}")
EXP = parse("graph _ {\n  input %a0: float32[4]\n  %0 = exp(self=%a0) : float32[4]\n  return %0\n}")


def test_equal_kernels_are_generated_once_and_lowered_each():
    kernels = [Kernel("triton", RELU, ("a",)), Kernel("triton", RELU, ("b",)), Kernel("triton", EXP, ("c",))]
    counts = compile_counts([*kernels, Kernel("aten", RELU, ("d",))], parameters=3, modules=2)
    assert counts == {
        "operator": 4,
        "kernel": 4,
        "distinct_kernel": 2,
        "library_call": 1,
        "grouped_convolution": 0,
        "pooling": 0.0,
        "parameter": 3,
        "module": 2,
        "further_graph": 0,
        "cuda_graph": 0,
        "start": 1.0,
    }


def test_graphs_beyond_the_first_and_captures_are_counted():
    default, replayed = (compile_counts([], graphs=3, mode=mode) for mode in ("default", "reduce-overhead"))
    assert (default["further_graph"], default["cuda_graph"]) == (2, 0)
    assert (replayed["further_graph"], replayed["cuda_graph"]) == (2, 3)


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
