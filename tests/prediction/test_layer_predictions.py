"""Predictions of layers from estimates made by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from costmodel.ir import parse
from costmodel.prediction.layer_predictions import _layer, _log_width
from costmodel.predictor.predictor import Estimate

OPS = parse("""graph g {
  input %x: float32[2]
  %0 = relu(self=%x) : float32[2]
  %1 = exp(self=%0) : float32[2]
  return %1
}""").ops


def estimate(us: float, width: float = 0.0, in_range: bool = True) -> Estimate:
    return Estimate(us, us / math.exp(width), us * math.exp(width), in_range)


def layer(eager: dict[str, list[Estimate]], compiled: list[Estimate], kernels: tuple[int, ...] = (0,)) -> Any:
    unit: Any = SimpleNamespace(name="act", kind="relu", ops=OPS, position=0.25, kernels=kernels)
    return _layer(unit, eager, compiled)


def test_a_speedup_is_of_sums_and_its_interval_of_independent_errors():
    """4 + 2 us become 3 us: 3-4-5 half-widths of 0.03 and 0.04 make 0.05."""
    eager = {"0": [estimate(4.0, 0.045)], "1": [estimate(2.0)]}
    found = layer(eager, [estimate(99.0), estimate(3.0, 0.04)], kernels=(1,))
    assert (found.eager_us, found.compiled_us, found.speedup) == (6.0, 3.0, 2.0)
    assert found.speedup_low == pytest.approx(2.0 / math.exp(0.05))
    assert found.speedup_high == pytest.approx(2.0 * math.exp(0.05))
    assert (found.name, found.kind, found.ops, found.position) == ("act", "relu", ("relu", "exp"), 0.25)


def test_a_layer_without_kernels_of_its_own_has_no_times():
    found = layer({}, [estimate(3.0)])
    assert (found.eager_us, found.compiled_us, found.speedup) == (None, 3.0, None)
    assert (found.speedup_low, found.speedup_high) == (None, None)
    found = layer({"0": [estimate(3.0)]}, [], kernels=())
    assert (found.eager_us, found.compiled_us, found.speedup) == (3.0, None, None)


def test_a_layer_is_in_range_if_all_its_kernels_are():
    inside, outside = estimate(1.0), estimate(3.0, in_range=False)
    assert layer({"0": [inside]}, [inside]).in_range
    found = layer({"0": [inside, outside]}, [inside])
    assert (found.in_range, found.extrapolated_share) == (False, 0.75)
    found = layer({"0": [inside]}, [outside])
    assert (found.in_range, found.extrapolated_share) == (False, 1.0)


def test_the_width_of_a_sum_weighs_each_part_by_its_share():
    assert _log_width([]) == 0.0
    assert _log_width([estimate(5.0, 0.3)]) == pytest.approx(0.3)
    # three quarters of 0.4 and a quarter of 1.6: 0.3 and 0.4 make 0.5
    assert _log_width([estimate(3.0, 0.4), estimate(1.0, 1.6)]) == pytest.approx(0.5)
