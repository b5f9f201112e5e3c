"""Matmuls in TF32 where none was measured, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.workloads.matmuls import linear_graph
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.other_precision import BFLOAT16_FACTOR, as_float16, tf32_estimates, with_twins

KERNEL = Kernel("aten", linear_graph(8, 16, 32, "float32", bias=True), (), tf32=True)


@pytest.mark.parametrize(
    ("wide_us", "half_us", "expected_us"),
    [
        (100.0, 12.0, 22.0),  # 2 + 2 * (12 - 2)
        (15.0, 12.0, 15.0),  # not above float32
        (3.0, 2.0, 2.0),  # a launch does not double
        (3.0, 1.5, 1.5),  # nor does what is below the floor become faster
    ],
)
def test_twice_float16_at_most_float32(wide_us: float, half_us: float, expected_us: float) -> None:
    def predict(chosen: Sequence[tuple[Kernel, float]]) -> list[Estimate]:
        (kernel, position), *_ = chosen
        assert not kernel.tf32
        assert position == 0.25
        us = {"float32": wide_us, "float16": half_us}[kernel.anchor.type.dtype]
        return [Estimate(us, us * 0.9, us * 1.1, in_range=True, host_us=us)]

    (found,) = tf32_estimates([(KERNEL, 0.25)], predict, floor_us=2.0)
    assert found.us == expected_us
    assert (found.low_us, found.high_us) == pytest.approx((min(expected_us, half_us * 0.9), wide_us * 1.1))
    assert (found.in_range, found.host_us) == (False, wide_us)


def test_the_float16_twin() -> None:
    assert as_float16(KERNEL).key == ("aten", str(linear_graph(8, 16, 32, "float16", bias=True)))


def test_extrapolated_bfloat16_is_predicted_as_float16() -> None:
    """A twin within range takes the place of an extrapolated estimate, with a wider interval; others stay."""
    kernels = {
        dtype: Kernel("aten", linear_graph(8, 16, 32, dtype, bias=True), ())
        for dtype in ("float32", "float16", "bfloat16")
    }
    own = Estimate(9.0, 3.0, 27.0, in_range=False)
    near = Estimate(5.0, 4.0, 6.0, in_range=True)

    def found(dtype: str, estimate: Estimate, twin: Estimate = near) -> Estimate:
        def predict(chosen: Sequence[tuple[Kernel, float]]) -> list[Estimate]:
            assert chosen == [(kernels["float16"], 0.25)]
            return [twin]

        (result,) = with_twins([(kernels[dtype], 0.25)], [estimate], predict)
        return result

    assert found("bfloat16", own) == Estimate(5.0, 4.0 / BFLOAT16_FACTOR, 6.0 * BFLOAT16_FACTOR, in_range=True)
    assert found("bfloat16", near, twin=own) == near
    assert found("bfloat16", own, twin=own) == own
    assert found("float32", own) == own
    assert found("float16", own) == own
