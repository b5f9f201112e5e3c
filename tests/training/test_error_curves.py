"""Error curves from errors of held-out rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.training.error_curves import BEYOND, fit_error_curve, held_out_distances, isotonic_curve
from costmodel.training.kernel_models import EDGES_US


def test_a_held_out_row_is_as_far_as_the_nearest_row_of_another_fold():
    x = np.array([[0.0], [0.1], [1.0], [4.0]], np.float32)
    tests = np.array([0, 0, 1, 1])
    found = held_out_distances(x, tests, np.arange(4))
    np.testing.assert_allclose(found, [1.0, 0.9, 0.9, 3.9], atol=1e-5)


def test_a_group_of_one_fold_has_no_distances():
    assert np.isinf(held_out_distances(np.zeros((3, 1), np.float32), np.zeros(3, int), np.arange(3))).all()


def test_a_curve_finds_how_errors_grow_with_distance():
    """Errors as large as their distance, uniformly: nine in ten are below nine tenths of it."""
    rng = np.random.default_rng(0)
    distance = rng.uniform(0, 2, 20_000)
    curve = isotonic_curve(distance, distance * rng.uniform(0, 1, len(distance)))
    assert [curve.factor(at) for at in (0.5, 1.0, 1.5)] == pytest.approx([0.45, 0.9, 1.35], rel=0.1)
    last = curve.distances[-2]
    assert curve.factor(BEYOND * last) == pytest.approx(BEYOND * curve.factor(last))


@given(st.integers(0, 1000), st.integers(200, 600))
def test_a_curve_never_falls(seed: int, rows: int):
    rng = np.random.default_rng(seed)
    curve = isotonic_curve(rng.exponential(1, rows), rng.exponential(1, rows))
    assert (np.diff(curve.distances) >= 0).all()
    assert (np.diff(curve.factors) >= 0).all()


def test_few_rows_make_no_curve():
    assert isotonic_curve(np.arange(50.0), np.arange(50.0)).factor(40.0) == 1.0


def test_errors_count_relative_to_the_usual_ones_of_kernels_that_take_as_long():
    """Short kernels are off by 0.1 and long ones by 1, as their half-widths say: the factor is 1 everywhere."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 2)).astype(np.float32)
    short = np.arange(800) % 2 == 0
    widths = np.array([0.1] + [1.0] * len(EDGES_US), np.float32)
    found = fit_error_curve(x, np.where(short, 0.1, 1.0), np.where(short, 1.0, 1e3), np.arange(800) % 8, widths)
    assert set(np.round(found.factors[:-1], 5)) == {1.0}
