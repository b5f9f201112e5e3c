"""Widths of 90 % prediction intervals of kernels, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from costmodel.kernels.kernel import Kernel
from costmodel.predictor.error_curve import ErrorCurve
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.group_model import EXTRAPOLATED_WIDTH, RECALLED_WIDTH
from costmodel.predictor.predictor import Predictor
from tests.support.predictors import KERNELS, conv, small_predictor

WIDTHS = (0.3, 0.2, 0.1)
NEW = conv(20)
"""A convolution that the small predictor does not remember."""


def half_width(estimate: Estimate) -> float:
    assert estimate.us / estimate.low_us == pytest.approx(estimate.high_us / estimate.us)
    return math.log(estimate.high_us / estimate.us)


def estimate_of_new(*, edges: tuple[float, float], far: float) -> Estimate:
    predictor = small_predictor()
    model = replace(predictor.groups["conv"], edges=np.array(edges, np.float32), widths=np.array(WIDTHS, np.float32))
    (found,) = Predictor({"conv": replace(model, far=far)}, predictor.roofline, 132).predict([NEW], [0.5])
    return found


@pytest.mark.parametrize(("factors", "width"), [((2.0, 4.0), 0.3), ((0.5, 2.0), 0.2), ((0.25, 0.5), 0.1)])
def test_an_interval_is_as_wide_as_that_of_kernels_that_take_as_long(factors: tuple[float, float], width: float):
    us = estimate_of_new(edges=(4.0, 40.0), far=1e9).us
    found = estimate_of_new(edges=(factors[0] * us, factors[1] * us), far=1e9)
    assert found.in_range
    assert half_width(found) == pytest.approx(width, abs=1e-6)


def test_without_an_error_curve_an_interval_is_three_times_as_wide_out_of_range():
    us = estimate_of_new(edges=(4.0, 40.0), far=1e9).us
    found = estimate_of_new(edges=(us / 2, us * 2), far=0.0)
    assert not found.in_range
    assert half_width(found) == pytest.approx(3 * 0.2, abs=1e-6)


def estimate_by(curve: ErrorCurve, kernel: Kernel = NEW) -> Estimate:
    """Estimate of a kernel that takes longer than the last edge, whose usual half-width is 0.1."""
    predictor = small_predictor()
    edges, widths = np.array([1e-3, 2e-3], np.float32), np.array(WIDTHS, np.float32)
    model = replace(predictor.groups["conv"], edges=edges, widths=widths, far=0.0)
    found = replace(predictor, groups={"conv": model}).with_curves({"conv": curve, "gemm": curve})
    return found.predict([kernel], [0.5])[0]


EXTRAPOLATED = EXTRAPOLATED_WIDTH / 0.1


@pytest.mark.parametrize("factor", [1.0, 2.5, EXTRAPOLATED - 1e-3, EXTRAPOLATED + 1e-3, 25.0, 1e6])
def test_a_kernel_is_extrapolated_where_its_curve_exceeds_the_stated_error(factor: float):
    found = estimate_by(ErrorCurve((0.0,), (factor,)))
    assert half_width(found) == pytest.approx(min(0.1 * factor, math.log(16)), abs=1e-5)
    assert found.in_range == (0.1 * factor <= EXTRAPOLATED_WIDTH)


def test_a_recalled_kernel_is_as_certain_whatever_its_curve_says():
    found = estimate_by(ErrorCurve((0.0,), (30.0,)), KERNELS[3])
    assert half_width(found) == pytest.approx(RECALLED_WIDTH, abs=1e-5)
    assert found.in_range


def test_a_curve_is_linear_between_its_distances_and_constant_beyond():
    curve = ErrorCurve((1.0, 3.0), (1.0, 2.0))
    assert [curve.factor(distance) for distance in (0.0, 1.0, 2.0, 3.0, 100.0)] == [1.0, 1.0, 1.5, 2.0, 2.0]
