"""Order of measuring: likeness and order by hand and against a plain greedy choice, expected errors, ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from collectors.sweep.acquisition import REACH, Values, expected_error, likeness, order, standardised, uncovered
from collectors.sweep.candidates import Candidate, candidates, rank
from collectors.workloads import convolution_space, matmuls
from collectors.workloads.cases import UnitCase
from costmodel.features import group_of
from costmodel.kernels.kernel import Kernel
from costmodel.predictor.estimate import Estimate
from costmodel.predictor.predictor import Base
from costmodel.training.dataset import units_frame
from costmodel.training.tables import trusted

SECONDS = {"aten": 1.0, "inductor": 2.0}
UNIT = convolution_space.ConvUnit(batch=2, in_channels=8, out_channels=12, size=9, kernel=3, stride=2, padding=1)


def line(*places: float) -> csr_array:
    return likeness(np.array([[place] for place in places], dtype=np.float32))


def test_likeness_falls_with_distance():
    like = line(0.0, REACH, 2 * REACH).toarray()
    one, two = math.exp(-0.5), math.exp(-2.0)
    assert like == pytest.approx(np.array([[1, one, two], [one, 1, one], [two, one, 1]]), rel=1e-5)
    assert line(7.0).toarray().tolist() == [[1.0]]


def test_three_clusters_are_covered_by_three_choices_the_largest_first():
    """Clusters of ten, five and one equal kernels, far apart: a choice covers 10, then 5, then 1.

    At random, three choices hit all three clusters in 6 x 10 x 5 x 1 of 16 x 15 x 14 cases, one in eleven.
    """
    heaps = [0] * 10 + [1] * 5 + [2]
    like = line(*(1000.0 * heap for heap in heaps))
    chosen = order(like, np.ones(16), np.ones(16))
    assert [heaps[row] for row in chosen[:3]] == [0, 1, 2]
    assert uncovered(like, np.array(chosen[:3])).sum() == pytest.approx(0.0, abs=1e-9)
    rng = np.random.default_rng(0)
    random_choices = [uncovered(like, rng.permutation(16)[:3]).sum() for _ in range(1000)]
    assert np.mean([left < 1e-9 for left in random_choices]) == pytest.approx(300 / 3360, abs=0.03)


def test_slow_kernels_wait_for_those_with_more_gain_per_second():
    apart = line(0.0, 1000.0, 2000.0)
    assert order(apart, np.array([1.0, 1.0, 1.0]), np.array([3.0, 1.0, 2.0])) == [1, 2, 0]
    assert order(apart, np.array([9.0, 1.0, 4.0]), np.array([3.0, 1.0, 2.0])) == [0, 2, 1]


def greedily(like: Values, error: Values, seconds: Values) -> list[float]:
    """Gains a second of greed that tries every row each time; ties make the order itself ambiguous."""
    left, rest, gains = error.copy(), list(range(len(error))), []
    while rest:
        row = max(rest, key=lambda one: like[one] @ left / seconds[one])
        gains.append(like[row] @ left / seconds[row])
        left = left * (1 - like[row])
        rest.remove(row)
    return gains


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 25), st.integers(0, 10**6))
def test_the_order_is_that_of_a_plain_greedy_choice_and_takes_every_row_once(count: int, seed: int):
    rng = np.random.default_rng(seed)
    like = likeness(rng.normal(0, 3, (count, 3)).astype(np.float32))
    error, seconds = rng.uniform(0.01, 1, count), rng.uniform(0.5, 3, count)
    chosen = order(like, error, seconds)
    assert sorted(chosen) == list(range(count))
    dense, left, gains = like.toarray(), error.copy(), []
    for row in chosen:
        gains.append(dense[row] @ left / seconds[row])
        left = left * (1 - dense[row])
    assert gains == pytest.approx(greedily(dense, error, seconds), rel=1e-6, abs=1e-12)


def test_the_region_that_is_predicted_worst_comes_first():
    """A function that is flat on the left and wild on the right, measured evenly: the next are on the right."""
    rng = np.random.default_rng(0)
    places = np.linspace(-3, 3, 121)
    times = np.where(places > 0, np.sin(40 * places), 0.0)
    x, known = places[:, None].astype(np.float32), rng.permutation(121)[:60]
    error, predicted = expected_error(x, x[known], times[known].astype(np.float32), known.astype(np.int64))
    right = places > 0
    assert error[right].mean() > 3 * error[~right].mean()
    assert np.abs(predicted[~right]).mean() < 0.3
    left = error * uncovered(likeness(x), known)
    chosen = order(csr_array(np.eye(121)), error, np.ones(121))
    assert right[chosen[:40]].mean() > 0.9
    assert (left <= error).all()


def pool(count: int = 12) -> list[UnitCase]:
    units = convolution_space.sample(count, 3)
    lone = [case for unit in units for case in convolution_space.kernel_cases(unit)]
    return [*(case for unit in units for case in convolution_space.unit_cases(unit)), *lone, *matmuls.sample(count, 3)]


def measured(of: Sequence[Candidate], us: float = 10.0) -> list[dict[str, Any]]:
    rows = []
    for case in (case for one in of for case in one.cases):
        about = {"key": case.key, "graph": case.graph, "runner": case.runner, "unit": case.unit, "way": case.way}
        rows.append(about | {"position": 0.5, "source": case.source, "status": "ok", "device_us": [us] * 5})
    return rows


def test_units_stay_together_and_lone_kernels_alone():
    found = candidates([*convolution_space.unit_cases(UNIT), *convolution_space.kernel_cases(UNIT)])
    assert [len(one.cases) for one in found] == [5, 1, 1, 1]
    assert all(one.kernel is not None and group_of(one.kernel) == "conv" for one in found)
    (eager,) = candidates([case for case in convolution_space.unit_cases(UNIT) if case.way == "eager"])
    assert eager.kernel is None


def test_the_kernel_of_a_candidate_is_the_one_that_training_reads():
    of = candidates(pool())
    read = set(trusted(units_frame(measured(of)))["graph"])
    assert read == {str(one.kernel.graph) for one in of if one.kernel is not None}


def test_a_rank_has_every_candidate_once_and_is_the_same_again():
    of = candidates(pool())
    first = rank(of, [], "cuda", SECONDS)
    assert sorted(map(id, first)) == sorted(map(id, of))
    assert first == rank(of, [], "cuda", SECONDS)
    useless = [one.kernel is None for one in first]
    assert useless == sorted(useless)
    assert any(useless)


@pytest.mark.parametrize("count", [25, 40])
def test_kernels_measured_already_come_late(count: int):
    """All but 20 were measured, too few or enough for a committee: offered again, they cover little."""
    of = candidates(matmuls.sample(count + 20, 5))
    ranked = rank(of, measured(of[:count]), "cuda", SECONDS)
    before = rank(of, [], "cuda", SECONDS)
    new = {one.cases for one in of[count:]}
    assert all(one.cases in new for one in ranked[:15])
    assert sum(one.cases in new for one in before[:15]) < 12


def test_kernels_that_models_call_often_come_first():
    """Twelve kernels far apart: the one that is called a thousand times is worth most."""
    cases = [replace(case, uses=1000 if index == 7 else 1) for index, case in enumerate(matmuls.sample(12, 5))]
    assert rank(candidates(cases), [], "cuda", SECONDS)[0].cases == (cases[7],)


class UnsureOfOne:
    """Predictor that knows every kernel within 5 %, and one within a factor of 2."""

    def __init__(self, unsure: str) -> None:
        self.unsure = unsure

    def predict(self, kernels: Sequence[Kernel], _: Sequence[float]) -> list[Estimate]:
        factors = [2.0 if str(kernel.graph) == self.unsure else 1.05 for kernel in kernels]
        return [Estimate(10.0, 10.0 / factor, 10.0 * factor, in_range=True) for factor in factors]


def test_kernels_of_which_the_base_is_unsure_come_first():
    cases = [replace(case, uses=1) for case in matmuls.sample(12, 5)]
    base = Base("other", "a" * 64, UnsureOfOne(cases[4].graph))
    assert rank(candidates(cases), [], "cuda", SECONDS, base)[0].cases == (cases[4],)


def test_with_a_base_measured_kernels_come_late_too():
    of = candidates(matmuls.sample(60, 5))
    base = Base("other", "a" * 64, UnsureOfOne(""))
    ranked = rank(of, measured(of[:40]), "cuda", SECONDS, base)
    new = {one.cases for one in of[40:]}
    assert all(one.cases in new for one in ranked[:15])


def test_features_are_standardised_over_the_pool():
    x = standardised(np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float32))
    assert x.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
