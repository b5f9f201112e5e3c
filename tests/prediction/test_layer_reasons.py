"""Phrases for gains and losses, for kernels made by hand."""

from __future__ import annotations

import pytest

from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.layer_reasons import reason_of
from costmodel.prediction.roofline_parts import RooflineParts
from costmodel.prediction.timed_kernels import Part
from costmodel.predictor.estimate import Estimate

NOTHING = RooflineParts(0, 0, 0.0, 0.0, 0.0)


def part(text: str, us: float, backend: str = "aten", share: float = 1.0, layout: str = "") -> Part:
    body = {
        "relu": "  input %a0: float32[4]\n  %0 = relu(self=%a0) : float32[4]\n",
        "copy": "  input %a0: float32[4]\n  %0 = mul.Tensor(self=%a0, other=1.0) : float32[4]\n",
        "conv": "  input %a0: float32[1,4,8,8]\n  param %p0: float32[4,4,1,1]\n"
        "  %0 = convolution(input=%a0, weight=%p0, bias=None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], "
        "transposed=False, output_padding=[0, 0], groups=1)"
        f" : float32[1,4,8,8]{layout}\n",
        "mm": "  input %a0: float32[4,4]\n  input %a1: float32[4,4]\n  %0 = mm(self=%a0, mat2=%a1) : float32[4,4]\n",
    }[text]
    kernel = Kernel(backend, parse(f"graph _ {{\n{body}  return %0\n}}"), ("0",))
    return Part(kernel, Estimate(us, us / 2, us * 2, True), NOTHING, share)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ([], [], ""),
        ([part("relu", 2)], [], "folded into other kernels"),
        ([], [part("relu", 2, "triton")], "work of other layers"),
        ([], [part("copy", 2, "triton")], "layout copies"),
        ([part("mm", 5)], [part("mm", 5.1)], "same library call"),
        ([part("mm", 5), part("relu", 1)], [part("mm", 6)], "no net change"),
        ([part("mm", 9)], [part("mm", 5)], "faster matmul call"),
        ([part("mm", 5)], [part("mm", 9)], "slower matmul call"),
        ([part("conv", 9)], [part("conv", 5)], "faster convolution"),
        ([part("conv", 9)], [part("conv", 5, layout=" nhwc")], "faster in channels_last"),
        ([part("conv", 5)], [part("conv", 9, layout=" nhwc")], "slower in channels_last"),
        ([part("conv", 5), part("copy", 4, "triton")], [part("conv", 5)], "fewer copies"),
        ([part("conv", 5)], [part("conv", 4), part("copy", 4, "triton")], "layout copies"),
        ([part("mm", 5), part("relu", 4), part("relu", 4)], [part("mm", 5), part("relu", 2, "triton")], "relu fused"),
        ([part("relu", 4)], [part("relu", 2, "triton")], "relu in a generated kernel"),
        ([part("relu", 4)], [part("relu", 4, "triton", share=0.5)], "relu fused"),
        ([part("relu", 4)], [part("relu", 8, "triton")], "slower generated kernel"),
    ],
)
def test_the_largest_change_in_the_layers_direction_is_named(
    before: list[Part], after: list[Part], reason: str
) -> None:
    assert reason_of(before, after) == reason
