"""Bounds of intervals over hosts and for extrapolated kernels, by hand."""

from __future__ import annotations

import math

import pytest

from costmodel.prediction.bounds import (
    CORRELATION,
    extrapolated_share,
    kernel_width,
    latency_bounds,
    speedup_bounds,
    speedup_width,
)
from costmodel.predictor.estimate import Estimate
from costmodel.timeline.queue import Timing


def timings(eager_us: float, graph_us: float) -> dict[str, Timing]:
    return {"eager": Timing(eager_us, 0.0, 0.0), "reduce-overhead": Timing(graph_us, 0.0, 0.0)}


HOSTS = [timings(200.0, 50.0), timings(300.0, 60.0), timings(180.0, 48.0)]
"""The assumed host, a slow one and a fast one."""


def test_an_interval_reaches_from_the_fastest_host_to_the_slowest():
    assert latency_bounds(HOSTS, "eager", 0.0) == pytest.approx((180.0, 300.0))
    low, high = latency_bounds(HOSTS, "reduce-overhead", math.log(2.0))
    assert (low, high) == pytest.approx((24.0, 120.0))


def test_a_speedup_is_that_of_one_host_at_a_time():
    """4, 5 and 3.75; never 300 / 48."""
    assert speedup_bounds(HOSTS, "reduce-overhead", 0.0) == pytest.approx((3.75, 5.0))


def kernel(us: float, factor: float, *, in_range: bool) -> Estimate:
    return Estimate(us, us / factor, us * factor, in_range)


def test_kernels_widen_an_interval_by_their_share_of_the_time():
    kernels = [kernel(90.0, 1.0, in_range=True), kernel(10.0, math.e, in_range=False)]
    assert extrapolated_share(kernels) == pytest.approx(0.1)
    assert kernel_width(kernels) == pytest.approx(CORRELATION * 0.1)
    assert kernel_width(kernels[1:]) == pytest.approx(CORRELATION)


def test_one_small_kernel_of_two_hundred_hardly_counts():
    known = [kernel(10.0, 1.2, in_range=True)] * 199
    more = kernel_width([*known, kernel(10.0, 8.0, in_range=False)]) - kernel_width(known)
    assert 0 < more < CORRELATION * math.log(8.0) / 200


def test_a_kernel_that_runs_in_both_passes_moves_both():
    """Of 4/5 of the eager pass and all of the compiled one, 1/5 is left; what runs on one side only counts whole."""
    same, other = (("aten", "lstm"), kernel(80.0, math.e, in_range=False)), ("aten", "relu")
    eager = [same, (other, kernel(20.0, 1.0, in_range=True))]
    assert speedup_width(eager, [same]) == pytest.approx(CORRELATION * 0.2)
    assert speedup_width([same], [same]) == 0.0
    apart = [(("aten", "gru"), kernel(80.0, math.e, in_range=False))]
    assert speedup_width(eager, apart) == pytest.approx(CORRELATION)
    assert speedup_width(apart, eager) == pytest.approx(CORRELATION)
    assert speedup_width([], []) == 0.0


def test_equal_kernels_of_a_pass_count_together():
    twice = [(("aten", "conv"), kernel(10.0, math.e, in_range=True))] * 2
    once = [twice[0], (("aten", "relu"), kernel(10.0, 1.0, in_range=True))]
    assert speedup_width(twice, once) == pytest.approx(CORRELATION * 0.5)


def test_no_kernel_widens_nothing():
    assert kernel_width([]) == 0.0
    assert extrapolated_share([]) == 0.0
    assert extrapolated_share([kernel(1.0, 2.0, in_range=True)]) == 0.0
