"""Causes of a layer's loss from estimates made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from costmodel.features import Roofline
from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.explain import _causes
from costmodel.prediction.layer_reasons import by_part
from costmodel.prediction.roofline_parts import roofline_parts
from costmodel.prediction.timed_kernels import Part
from costmodel.predictor.estimate import Estimate

ROOFLINE = Roofline(1000.0, {}, floor_us=1.0)
PROFILE: Any = SimpleNamespace(predictor=SimpleNamespace(roofline=ROOFLINE))
KIND = "float32[1,8,4,4]"
CONV = Kernel(
    "aten",
    parse(f"""graph _ {{
      input %a: {KIND}
      param %w: float32[8,8,1,1]
      %0 = convolution(input=%a, weight=%w, bias=None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], \
transposed=False, output_padding=[0, 0], groups=1) : {KIND}
      return %0
    }}"""),
    (),
)


def fused(*bases: str) -> Kernel:
    lines = ["graph _ {", f"  input %x: {KIND}"]
    lines += [f"  %{i} = {base}(self=%{i - 1 if i else 'x'}) : {KIND}" for i, base in enumerate(bases)]
    return Kernel("triton", parse("\n".join([*lines, f"  return %{len(bases) - 1}", "}"])), ())


RELU, TWO = fused("relu"), fused("relu", "exp")
COPIED = Kernel(
    "triton",
    parse(f"graph _ {{\n  input %x: {KIND}\n  %0 = clone(self=%x) : {KIND} nhwc\n  return %0\n}}"),
    (),
)


def parts(pairs: Sequence[tuple[Kernel, float]]) -> list[Part]:
    kernels = [kernel for kernel, _ in pairs]
    rooflines = roofline_parts(kernels, ROOFLINE)
    return [
        Part(kernel, Estimate(us, us, us, True), roofline, 1.0)
        for (kernel, us), roofline in zip(pairs, rooflines, strict=True)
    ]


def causes(before: Sequence[tuple[Kernel, float]], after: Sequence[tuple[Kernel, float]]) -> list[str]:
    return _causes(parts(before), parts(after), PROFILE)


def test_times_are_summed_by_part():
    pairs = [(CONV, 3.0), (RELU, 2.0), (COPIED, 5.0), (TWO, 4.0), (CONV, 1.0)]
    assert by_part(parts(pairs)) == {"copies": 5.0, "conv": 4.0, "gemm": 0.0, "other": 6.0}


def test_a_cause_is_what_takes_longer_than_before():
    """The convolution loses 30 us, the rest gains 5: of a loss of 25 only the convolution is named."""
    found = causes([(CONV, 50.0), (RELU, 25.0)], [(CONV, 80.0), (TWO, 20.0)])
    assert found == ["the library's convolution is 30.0 us slower in Inductor's layout"]


@pytest.mark.parametrize(("copies", "named"), [(30.0, True), (20.0, False)])
def test_a_cause_is_named_above_a_fifth_of_the_loss(copies: float, named: bool):
    """Of 130 and 120 us more, copies are 30 (23 %) and 20 (a sixth)."""
    found = causes([(CONV, 10.0)], [(CONV, 110.0), (COPIED, copies), (TWO, 0.0)])
    assert found[-1] == "the library's convolution is 100.0 us slower in Inductor's layout"
    assert (found[0] == f"layout conversions (copies take {copies:.1f} us more)") is named


def test_kernels_of_one_operator_each_are_not_fused():
    slower = "Inductor's kernels take 50.0 us longer than the kernels that they replace"
    assert causes([(RELU, 50.0)], [(RELU, 100.0)]) == [slower, "no fusion"]
    assert causes([(RELU, 50.0)], [(TWO, 100.0)]) == [slower]


def test_small_kernels_are_bound_by_latency_and_large_ones_by_traffic():
    """The smallest kernel takes 1 us; two tensors of 512 bytes take 1.024 us at 1,000 bytes a microsecond."""
    small = "latency-bound small kernels (each takes about as long as an empty one)"
    assert causes([(TWO, 1.0)], [(TWO, 1.5)])[1:] == [small, "memory-bound"]
    assert causes([(TWO, 1.0)], [(TWO, 1.53)])[1:] == ["memory-bound"]
    assert causes([(TWO, 1.0)], [(TWO, 1.54)])[1:] == []
    assert small not in causes([(TWO, 1.0)], [(TWO, 1.4), (TWO, 1.6)])
