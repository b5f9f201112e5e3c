"""Widths of 90 % prediction intervals of kernels, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from costmodel.predictor.predictor import Estimate, Predictor
from tests.support.predictors import conv, small_predictor

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


def test_an_interval_is_three_times_as_wide_out_of_range():
    us = estimate_of_new(edges=(4.0, 40.0), far=1e9).us
    found = estimate_of_new(edges=(us / 2, us * 2), far=0.0)
    assert not found.in_range
    assert half_width(found) == pytest.approx(3 * 0.2, abs=1e-6)
