"""Layout of a graph that reports name."""

from __future__ import annotations

import pytest

from costmodel.ir import parse
from costmodel.timeline.issue_trace import layout_of

GRAPH = """graph _ {{
  input %x: float32[2,8,4,4]{image}
  param %w: float32[16,8,1,1]
  %0 = relu(self=%x) : float32[2,8,4,4]{relu}
  %1 = convolution(input=%0, weight=%w, bias=None, stride=[1, 1], padding=[0, 0], dilation=[1, 1], \
transposed=False, output_padding=[0, 0], groups=1) : float32[2,16,4,4]{convolution}
  return %1
}}"""


@pytest.mark.parametrize(
    ("image", "relu", "convolution", "layout"),
    [
        ("", "", "", "nchw"),
        (" nhwc", "", "", "nhwc"),
        ("", "", " nhwc", "nhwc"),  # its weights lie channels last
        ("", " nhwc", "", "nchw"),  # no convolution
    ],
)
def test_inputs_and_the_first_convolution_decide(image: str, relu: str, convolution: str, layout: str):
    assert layout_of(parse(GRAPH.format(image=image, relu=relu, convolution=convolution))) == layout
