"""Warnings of a report, by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from costmodel.features import Roofline
from costmodel.ir import Break, parse
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.report_warnings import unmeasured_precisions, unsupported_in, warnings_of
from costmodel.predictor.estimate import Estimate
from costmodel.report import Unsupported

GRAPH = parse("""graph net {
  input %x: float32[2]
  %0 = relu(self=%x) : float32[2]
  %1 = strange(self=%0) : float32[2] @head.act
  %2 = strange(self=%1) : float32[2] @head.act
  %3 = odd(self=%2) : float32[2]
  return %3
}""")
PLAIN = replace(GRAPH, ops=GRAPH.ops[:1], outputs=GRAPH.ops[1].refs())


def broken(*breaks: Break) -> Any:
    return replace(PLAIN, breaks=breaks)


def estimates(*times: float, outside: int = 0) -> list[Estimate]:
    return [Estimate(us, us, us, index >= outside) for index, us in enumerate(times)]


def test_operators_without_a_rule_are_named_once_a_module():
    assert unsupported_in(GRAPH) == (Unsupported("strange", "head.act"), Unsupported("odd", ""))
    assert unsupported_in(PLAIN) == ()
    assert warnings_of(GRAPH, []) == ("operators without a cost rule count with their traffic only: odd, strange",)


def test_places_that_lack_values_are_named_with_the_modules_that_run_them():
    graph = broken(
        Break("stop", "control_flow", "a", "net.py:3"),
        Break("size", "nonzero", "b", "net.py:5"),
        Break("size", "nonzero", "c", "net.py:5"),
        Break("size", "nonzero", "d", "net.py:5"),
        Break("cut", "print", "e", "net.py:7"),
    )
    assert unsupported_in(graph) == (
        Unsupported("control_flow", "a (net.py:3)"),
        Unsupported("nonzero", "b and 2 more (net.py:5)"),
    )


def test_an_incomplete_capture_says_what_it_misses():
    graph = broken(Break("stop", "control_flow", "", "net.py:3", ("head", "neck")))
    (whole,) = warnings_of(graph, [])
    assert whole.startswith("captured in part: net (net.py:3) has data-dependent control flow; the rest is not in the")
    assert whole.endswith(" figures, including head, neck")
    (warning,) = warnings_of(broken(Break("stop", "control_flow", "body", "net.py:3")), [])
    assert warning.startswith("captured in part: body (net.py:3)")
    assert warning.endswith("not in the figures")


def test_sizes_of_results_are_named_once_and_cuts_are_no_warning():
    sizes = [Break("size", op, "a", f"net.py:{line}") for line, op in enumerate(("unique", "nonzero", "unique"))]
    assert warnings_of(broken(*sizes, Break("cut", "print", "e", "net.py:7")), []) == (
        "results of data-dependent size are counted at their largest: nonzero, unique",
    )


@pytest.mark.parametrize(
    ("outside", "words"),
    [
        (0, None),
        (1, "1 of 4 kernels is extrapolated, 25.0% of the device time: the intervals are wider by that share"),
        (2, "2 of 4 kernels are extrapolated, 75.0% of the device time: the intervals are wider by that share"),
    ],
)
def test_extrapolated_kernels_of_both_passes_are_counted_and_the_larger_share_named(outside: int, words: str | None):
    found = warnings_of(PLAIN, estimates(1.0, 2.0, 1.0, outside=outside), estimates(100.0))
    assert found == (() if words is None else (words,))


def kernel(dtype: str) -> Kernel:
    text = f"graph _ {{\n  input %a: {dtype}[4]\n  %0 = relu(self=%a) : {dtype}[4]\n  return %0\n}}"
    return Kernel("aten", parse(text), ())


def test_precisions_that_were_not_measured_are_named():
    roofline = Roofline(1000.0, {"conv.float32": 1.0}, 1.0)
    profile: Any = SimpleNamespace(name="some-gpu", predictor=SimpleNamespace(roofline=roofline))
    known, half, brain = kernel("float32"), kernel("float16"), kernel("bfloat16")
    assert unmeasured_precisions([known, kernel("int64")], profile) == ()
    assert unmeasured_precisions([known, half, half, brain], profile) == (
        "bfloat16, float16 was not measured on some-gpu: 3 of 4 kernels are extrapolated from other precisions",
    )
    assert unmeasured_precisions([half], profile) == (
        "float16 was not measured on some-gpu: every figure is extrapolated from other precisions",
    )
