"""The difference of a device from a base: learnt where it was measured, the base's elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from costmodel.predictor.predictor import BASE_ALONE_WIDTH, LOG_BASE_US, Base, Predictor
from costmodel.predictor.recall import key_hash
from costmodel.training.folds import by_shape
from costmodel.training.tables import Table
from costmodel.training.transferred import PRIOR_ROWS, constant, fit_difference, relative_to_base, transfer
from tests.support.predictors import KERNELS, MEASURED_US, POSITIONS, ROOFLINE, conv, small_predictor

BASE = Base("other", "a" * 64, small_predictor())


def table(rows: int, seed: int = 0) -> Table:
    """Kernels that take 1.5 times as long as on the base where the first feature is above 0, else 0.8 times."""
    rng = np.random.default_rng(seed)
    raw = rng.uniform(-1, 1, (rows, 3)).astype(np.float32)
    base_us = np.exp(rng.uniform(0, 5, rows))
    ratio = np.where(raw[:, 0] > 0, 1.5, 0.8) * np.exp(rng.normal(0, 0.01, rows))
    hashes = rng.integers(-(2**62), 2**62, rows)
    return Table(("a", "b", LOG_BASE_US), raw, base_us, base_us * ratio, rng.integers(0, rows, rows), hashes=hashes)


def test_a_difference_that_depends_on_a_feature_is_learnt_for_held_out_shapes():
    tables = {"conv": table(600)}
    fit = transfer(tables, {"conv": by_shape(tables["conv"].shape, 4)}, ROOFLINE, 132, BASE)
    error = np.abs(np.exp(fit.out_of_fold["conv"] - tables["conv"].target) - 1)
    constant_error = np.abs(np.exp(np.median(tables["conv"].target) - tables["conv"].target) - 1)
    assert np.median(error) < 0.02
    assert error.mean() < 0.2 * constant_error.mean()
    assert fit.predictor.base is BASE
    assert all(predictor.base is BASE for predictor in fit.by_fold.values())
    assert len(fit.predictor.groups["conv"].recall.hashes) == 600


def test_a_group_with_few_kernels_has_their_ratio_drawn_towards_that_of_all():
    few = table(10)
    few = Table(few.names, few.raw, few.bound_us, few.bound_us * 2.0, few.shape, hashes=few.hashes)
    model = fit_difference(few, shared=0.0)
    far = np.full((1, 3), 6.0, np.float32)
    assert model.expected(far)[0] == pytest.approx(math.log(2) * 10 / (10 + PRIOR_ROWS), rel=1e-4)


def test_times_are_relative_to_the_base_which_is_a_feature():
    raw = np.zeros((len(KERNELS), 1), np.float32)
    known = Table(("a",), raw, np.ones(8), 2.0 * MEASURED_US.astype(float), np.arange(8))
    found = relative_to_base({"conv": known}, KERNELS, BASE)["conv"]
    assert found.names == ("a", LOG_BASE_US)
    np.testing.assert_allclose(found.target, math.log(2), atol=1e-3)
    np.testing.assert_allclose(found.raw[:, 1], np.log2(MEASURED_US + 1), rtol=1e-3)


def test_a_group_that_was_not_measured_is_the_bases_with_a_wider_interval():
    found = Predictor({}, ROOFLINE, 132, BASE).predict(KERNELS, POSITIONS)
    assert [one.us for one in found] == pytest.approx(MEASURED_US.tolist(), rel=1e-3)
    assert all(math.log(one.high_us / one.us) >= BASE_ALONE_WIDTH - 1e-9 for one in found)


def test_a_kernel_is_recalled_from_the_device_and_otherwise_follows_the_base():
    names = tuple(small_predictor().groups["conv"].names)
    raw = np.zeros((1, len(names) + 1), np.float32)
    hashes = np.array([key_hash(KERNELS[0].key)])
    known_us = MEASURED_US[:1].astype(float), np.array([50.0])
    host_us = np.array([17.0], np.float32)
    one = Table((*names, LOG_BASE_US), raw, *known_us, np.arange(1), host_us=host_us, hashes=hashes)
    predictor = Predictor({"conv": fit_difference(one, shared=math.log(1.25))}, ROOFLINE, 132, BASE)
    recalled, other = predictor.predict([KERNELS[0], KERNELS[5]], [0.5, 0.5])
    assert (recalled.us, recalled.host_us) == pytest.approx((50.0, 17.0), rel=1e-3)
    ratio = math.exp(math.log(50 / MEASURED_US[0]) / 11 + math.log(1.25) * 10 / 11)
    assert other.us == pytest.approx(MEASURED_US[5] * ratio, rel=2e-3)


def test_an_interval_is_no_narrower_than_the_bases():
    new = conv(72)
    names = tuple(small_predictor().groups["conv"].names)
    rows = table(80)
    raw = np.zeros((80, len(names) + 1), np.float32)
    exact = Table((*names, LOG_BASE_US), raw, rows.bound_us, rows.bound_us * 1.1, rows.shape, hashes=rows.hashes)
    (found,) = Predictor({"conv": fit_difference(exact, 0.1)}, ROOFLINE, 132, BASE).predict([new], [0.5])
    (before,) = BASE.predictor.predict([new], [0.5])
    assert found.high_us / found.us >= before.high_us / before.us * (1 - 1e-9)


def test_constant_trees():
    assert constant(0.25).verify(1).forward(np.zeros((3, 1), np.float32)).tolist() == [0.25] * 3
