"""Features of fused kernels, each derived by hand."""

from __future__ import annotations

import math

import pytest

from costmodel.features import Roofline, featurize
from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel

ROOFLINE = Roofline(bytes_per_us=1000.0, peak={}, floor_us=1.0)
MULTIPROCESSORS = 2


def features(text: str) -> dict[str, float]:
    return featurize(Kernel("triton", parse(text), ()), ROOFLINE, MULTIPROCESSORS)


def log2_of_one_more(value: float) -> float:
    return math.log2(value + 1)


REDUCTION = """graph _ {
  input %a0: float32[8,16,4,4] nhwc
  param %p0: float32[16,1,1]
  %0 = mul.Tensor(self=%a0, other=%p0) : float32[8,16,4,4] nhwc
  %1 = mean.dim(self=%0, dim=[2, 3], keepdim=True) : float32[8,16,1,1]
  %2 = sigmoid(self=%1) : float32[8,16,1,1]
  return %2, %1
}"""


def test_a_reduction_behind_a_product():
    """8*16*4*4 = 2,048 products are reduced to 8*16 = 128 means of 16 each."""
    found = features(REDUCTION)
    counts = {"operators": 3, "inputs": 2, "outputs": 2, "reductions": 1, "reduces_nhwc": 1, "of_params": 0}
    assert {name: found[name] for name in counts} == counts
    assert found["log_domain"] == pytest.approx(log2_of_one_more(2048))
    assert found["log_outer"] == pytest.approx(log2_of_one_more(128))
    assert found["log_inner"] == pytest.approx(log2_of_one_more(16))
    assert found["blocks"] == pytest.approx(log2_of_one_more(2048 / 1024 / 2))
    assert found["large_inputs"] == 1  # the image; the parameter has 16 of 2,048 elements


def test_the_layout_that_a_reduction_reads():
    assert features(REDUCTION.replace(" nhwc", ""))["reduces_nhwc"] == 0


def test_without_a_reduction_every_element_is_a_result():
    text = """graph _ {
      param %p0: float32[4,6]
      %0 = exp(self=%p0) : float32[4,6]
      return %0
    }"""
    found = features(text)
    assert found["log_outer"] == found["log_domain"] == pytest.approx(log2_of_one_more(24))
    assert found["log_inner"] == pytest.approx(1)  # log2(24 / 24 + 1)
    assert (found["of_params"], found["reductions"], found["split"]) == (1, 0, 0)
    assert (found["log_last"], found["log_channels"]) == pytest.approx((math.log2(7), math.log2(7)))


@pytest.mark.parametrize(("elements", "large"), [(6, 1), (7, 2), (20, 2)])
def test_an_input_is_large_if_it_has_more_than_a_quarter_of_the_elements(elements: int, large: int):
    """Put together with an input of 20: 4 * 6 = 24 of 26 elements are too few, 4 * 7 = 28 are more than 27."""
    text = f"""graph _ {{
      input %a0: float32[20]
      input %a1: float32[{elements}]
      %0 = cat(tensors=[%a1, %a0]) : float32[{elements + 20}]
      return %0
    }}"""
    assert features(text)["large_inputs"] == large


def test_an_input_of_exactly_a_quarter_is_not_large():
    text = """graph _ {
      input %a0: float32[4,4]
      input %a1: float32[4]
      %0 = add.Tensor(self=%a0, other=%a1) : float32[4,4]
      return %0
    }"""
    assert features(text)["large_inputs"] == 1  # 4 * 4 is 16, and not more than the domain's 16


def test_operators_that_move_elements():
    text = """graph _ {
      input %a0: float32[2,4,4,4]
      input %a1: float32[2,4,4,4] strided
      %0 = permute(self=%a0, dims=[0, 1, 3, 2]) : float32[2,4,4,4] strided
      %1 = slice.Tensor(self=%a1, dim=1, start=0, end=2) : float32[2,2,4,4] strided
      %2 = cat(tensors=[%0, %1, %a0], dim=1) : float32[2,10,4,4]
      %3 = clone(self=%2) : float32[2,10,4,4]
      return %3
    }"""
    found = features(text)
    counts = {"cats": 1, "cat_inputs": 3, "shuffles": 1, "slices": 1, "copies": 1, "strided": 1, "to_nhwc": 0}
    assert {name: found[name] for name in counts} == counts
    assert found["operators"] == 2  # views compute nothing


def test_windows_of_pooling():
    text = """graph _ {
      input %a0: float32[1,4,8,8]
      %0 = avg_pool2d(self=%a0, kernel_size=[3, 2], stride=[1, 1]) : float32[1,4,6,7]
      return %0
    }"""
    assert features(text)["log_windows"] == pytest.approx(log2_of_one_more(6))


def test_operators_of_many_instructions():
    text = """graph _ {
      input %a0: float32[64]
      %0 = relu(self=%a0) : float32[64]
      %1 = gelu(self=%0) : float32[64]
      return %1
    }"""
    assert features(text)["transcendental"] == 1
