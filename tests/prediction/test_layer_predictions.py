"""Predictions of layers from estimates made by hand."""

from __future__ import annotations

import math

import pytest

from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.layer_groups import Layer
from costmodel.prediction.layer_predictions import _log_width, predict_layer
from costmodel.prediction.roofline_parts import RooflineParts
from costmodel.prediction.timed_kernels import Part
from costmodel.predictor.estimate import Estimate
from costmodel.report.types import LayerPrediction

GRAPH = parse("""graph g {
  input %x: float32[2]
  %0 = relu(self=%x) : float32[2]
  %1 = exp(self=%0) : float32[2]
  return %1
}""")


def estimate(us: float, width: float = 0.0, in_range: bool = True) -> Estimate:
    return Estimate(us, us / math.exp(width), us * math.exp(width), in_range)


KERNEL = Kernel("triton", GRAPH, ("0", "1"))


def part(one: Estimate, share: float = 1.0) -> Part:
    return Part(KERNEL, one, RooflineParts(0, 16, 0.0, 0.0, 1.0), share)


def layer(eager: list[Estimate], compiled: list[Estimate]) -> LayerPrediction:
    found = Layer("act", "act", "relu", GRAPH.ops, 0.25)
    return predict_layer(GRAPH, {"act": "Act"}, found, list(map(part, eager)), list(map(part, compiled)))


def test_a_speedup_is_of_sums_and_its_interval_of_independent_errors():
    """4 + 2 us become 3 us: 3-4-5 half-widths of 0.03 and 0.04 make 0.05."""
    found = layer([estimate(4.0, 0.045), estimate(2.0)], [estimate(3.0, 0.04)])
    assert (found.eager_us, found.compiled_us, found.speedup) == (6.0, 3.0, 2.0)
    assert found.speedup_low == pytest.approx(2.0 / math.exp(0.05))
    assert found.speedup_high == pytest.approx(2.0 * math.exp(0.05))
    assert (found.name, found.kind, found.ops, found.position) == ("act", "relu", ("relu", "exp"), 0.25)
    assert (found.module_type, found.shape, found.bound, found.backend) == ("Act", (2,), "launch", "inductor")


def test_a_layer_without_kernels_of_its_own_has_no_times():
    found = layer([], [estimate(3.0)])
    assert (found.eager_us, found.compiled_us, found.speedup) == (None, 3.0, None)
    assert (found.speedup_low, found.speedup_high) == (None, None)
    found = layer([estimate(3.0)], [])
    assert (found.eager_us, found.compiled_us, found.speedup) == (3.0, None, None)


def test_a_layer_is_in_range_if_all_its_kernels_are():
    inside, outside = estimate(1.0), estimate(3.0, in_range=False)
    assert layer([inside], [inside]).in_range
    found = layer([inside, outside], [inside])
    assert (found.in_range, found.extrapolated_share) == (False, 0.75)
    found = layer([inside], [outside])
    assert (found.in_range, found.extrapolated_share) == (False, 1.0)


def test_the_width_of_a_sum_weighs_each_part_by_its_share():
    assert _log_width([]) == 0.0
    assert _log_width([part(estimate(5.0, 0.3))]) == pytest.approx(0.3)
    # three quarters of 0.4 and a quarter of 1.6: 0.3 and 0.4 make 0.5
    assert _log_width([part(estimate(3.0, 0.4)), part(estimate(1.0, 1.6))]) == pytest.approx(0.5)
    assert _log_width([part(estimate(6.0, 0.4), 0.5), part(estimate(1.0, 1.6))]) == pytest.approx(0.5)
