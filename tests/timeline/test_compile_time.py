"""Compile time: a sum of counts times costs, never below nothing."""

from __future__ import annotations

import pytest

from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel
from costmodel.timeline.host_counts import compile_us
from costmodel.timeline.issue_trace import compile_counts

RELU = parse("graph _ {\n  input %a0: float32[4]\n  %0 = relu(self=%a0) : float32[4]\n  return %0\n}")
EXP = parse("graph _ {\n  input %a0: float32[4]\n  %0 = exp(self=%a0) : float32[4]\n  return %0\n}")


def test_equal_kernels_are_generated_once_and_lowered_each():
    kernels = [Kernel("triton", RELU, ("a",)), Kernel("triton", RELU, ("b",)), Kernel("triton", EXP, ("c",))]
    library = Kernel("aten", RELU, ("d",))
    assert compile_counts([*kernels, library]) == {"operator": 4, "distinct_kernel": 2, "start": 1.0}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (100.0, 4 * 10.0 + 2 * 20.0 + 100.0),
        (-80.0, 0.0),  # 40 + 40 - 80
        (-1e6, 0.0),  # a line fitted to large models, far below them
    ],
)
def test_compile_time_by_hand(start: float, expected: float):
    costs = {"operator": 10.0, "distinct_kernel": 20.0, "start": start}
    assert compile_us({"operator": 4, "distinct_kernel": 2, "start": 1.0}, costs) == expected
