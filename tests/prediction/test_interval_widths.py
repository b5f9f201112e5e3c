"""Widths of 90 % prediction intervals of modes and layers, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from costmodel.ir import Graph, parse
from costmodel.kernels.kernel import Kernel
from costmodel.prediction.layer_predictions import _log_width
from costmodel.prediction.predict_graph import predict_graph
from costmodel.prediction.roofline_parts import RooflineParts
from costmodel.prediction.timed_kernels import Part
from costmodel.predictor.estimate import Estimate
from costmodel.profiles.profile import Profile
from costmodel.report import Report

RELU = Kernel(
    "aten", parse("graph _ {\n  input %a0: float32[64]\n  %0 = relu(self=%a0) : float32[64]\n  return %0\n}"), ()
)
NOTHING = RooflineParts(0, 0, 0.0, 0.0, 0.0)


def predicted(graph: Graph, profile: Profile, latency: float, speedup: float) -> Report:
    """A report by a profile whose intervals are those, in every mode, for a known host."""
    modes = ("eager", "default", "reduce-overhead")
    widths = {"latency": dict.fromkeys(modes, latency), "speedup": dict.fromkeys(modes[1:], speedup)}
    return predict_graph(graph, replace(profile, card={**profile.card, "intervals": widths}, host_calibrated=True))


def test_a_mode_is_as_uncertain_as_its_profile_says(graph_of: Callable[[str], Graph], h200: Profile):
    """Beside what is added for kernels out of range, which narrow and wide have in common."""
    narrow = predicted(graph_of("alexnet"), h200, 0.0, 0.0).modes
    wide = predicted(graph_of("alexnet"), h200, 0.5, 0.25).modes
    assert list(wide) == ["eager", "default", "reduce-overhead"]
    for name, mode in wide.items():
        before = narrow[name]
        assert mode.latency_ms == before.latency_ms
        assert mode.high_ms / before.high_ms == pytest.approx(math.exp(0.5))
        assert before.low_ms / mode.low_ms == pytest.approx(math.exp(0.5))
        assert mode.high_ms / mode.latency_ms == pytest.approx(mode.latency_ms / mode.low_ms)
        if name != "eager":
            assert mode.speedup_high / before.speedup_high == pytest.approx(math.exp(0.25))
            assert before.speedup_low / mode.speedup_low == pytest.approx(math.exp(0.25))


def test_a_sum_of_independent_kernels_is_less_uncertain_than_each():
    """Half of 6 us and 1 us, each within a factor of e^0.4: the root of (0.75 * 0.4)^2 + (0.25 * 0.4)^2."""
    factor = math.exp(0.4)
    estimates = [Estimate(us, us / factor, us * factor, in_range=True) for us in (6.0, 1.0)]
    kernels = [Part(RELU, one, NOTHING, share) for one, share in zip(estimates, (0.5, 1.0), strict=True)]
    assert _log_width(kernels) == pytest.approx(math.sqrt(0.3**2 + 0.1**2))
    assert _log_width(kernels[:1]) == pytest.approx(0.4)
    assert _log_width([]) == 0.0
