"""Shares of a device that kernels fill alone, by hand."""

from __future__ import annotations

import pytest

from costmodel.features import Roofline, device_share, featurize
from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel

ROOFLINE = Roofline(bytes_per_us=1000.0, peak={}, floor_us=2.0)
RELU = Kernel(
    "triton", parse("graph _ {\n  input %a: float32[1000]\n  %0 = relu(self=%a) : float32[1000]\n  return %0\n}"), ()
)


@pytest.mark.parametrize(
    ("us", "share"),
    [
        (8.0, 1.0),  # 8,000 bytes take 8 us
        (16.0, 0.5),
        (32.0, 0.25),
        (4.0, 1.0),  # never more than all
        (1.0, 1.0),
    ],
)
def test_a_kernel_fills_as_much_as_it_takes_of_the_bandwidth(us: float, share: float):
    assert device_share(RELU, us, ROOFLINE, 132) == pytest.approx(share)


def test_a_kernel_takes_no_less_than_the_smallest():
    text = "graph _ {\n  input %a: float32[125]\n  %0 = relu(self=%a) : float32[125]\n  return %0\n}"
    assert device_share(Kernel("triton", parse(text), ()), 0.5, ROOFLINE, 132) == pytest.approx(1000 / 1000 / 2)


def matmul(rows: int) -> Kernel:
    text = f"""graph _ {{
      input %a: float32[{rows},64]
      param %b: float32[64,128]
      %0 = mm(self=%a, mat2=%b) : float32[{rows},128]
      return %0
    }}"""
    return Kernel("aten", parse(text), ())


def test_a_matmul_fills_a_device_by_its_tiles():
    """Between the shares of tiles of 64 x 64 and 128 x 128: their geometric mean, and never more than all."""
    small, large = matmul(128), matmul(128 * 1000)
    features = featurize(small, ROOFLINE, 132)
    by_tiles = 2 ** features["log_waves_64"], 2 ** features["log_waves_128"]
    share = device_share(small, 1.0, ROOFLINE, 132)
    assert share == pytest.approx((by_tiles[0] * by_tiles[1]) ** 0.5)
    assert min(by_tiles) <= share <= max(by_tiles) < 1.0
    assert device_share(large, 1.0, ROOFLINE, 132) == 1.0
    assert device_share(small, 99.0, ROOFLINE, 132) == share  # whatever it takes
