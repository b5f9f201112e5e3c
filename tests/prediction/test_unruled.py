"""Operators without a cost rule: counted with their traffic, named, and in the intervals by their share of the time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import costmodel
from collectors.workloads.single_operators import Apply
from costmodel.capture.trace import capture
from costmodel.ir import Op, operators
from costmodel.prediction.predict_graph import predict_graph
from costmodel.profiles.profile import profile_of
from costmodel.timeline.issue_trace import eager_trace


def widths(pixels: int) -> tuple[float, float]:
    """Half-width of the eager interval, and share of the time, of an operator without a rule beside a convolution."""
    module = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), Apply(lambda x: torch.special.bessel_j0(x[..., :pixels])))
    graph = capture(module.eval(), (torch.empty(8, 64, 56, 56, device="meta"),))
    profile = profile_of("nvidia-h200")
    report = predict_graph(graph, profile)
    assert [item.op for item in report.unsupported] == ["special_bessel_j0"]
    trace = eager_trace(graph)
    found = profile.predictor.predict(trace.kernels, trace.positions)
    share = found[-1].us / sum(one.us for one in found)
    read = written = 8 * 64 * 56 * pixels * 4
    whole = 8 * 64 * 56 * 56 * 4  # the sliced tensor
    assert found[-1].us == pytest.approx(
        profile.predictor.roofline.floor_us + (whole + written) / profile.predictor.roofline.bytes_per_us
    )
    assert read <= whole
    eager = report.modes["eager"]
    return math.log(eager.high_ms / eager.latency_ms), share


def test_the_interval_widens_with_the_share_of_the_time() -> None:
    (narrow, small), (wide, large) = widths(1), widths(56)
    assert 0 < small < large < 1
    assert wide - narrow >= 0.9 * math.log((1 + 3 * large) / (1 + 3 * small))


@pytest.mark.parametrize(
    ("layer", "shape", "kind"),
    [
        (nn.ConvTranspose2d(4, 4, 2, 2), (1, 4, 8, 8), "conv_transpose2d"),
        (nn.ConvTranspose3d(4, 4, 2, 2), (1, 4, 4, 8, 8), "conv_transpose3d"),
        (nn.Conv3d(4, 4, 3), (1, 4, 4, 8, 8), "conv3d"),
        (nn.Conv2d(4, 4, 3), (1, 4, 8, 8), "conv2d"),
        (nn.Conv1d(4, 4, 3), (1, 4, 8), "conv1d"),
    ],
)
def test_convolutions_are_named_by_what_they_are(layer: nn.Module, shape: tuple[int, ...], kind: str) -> None:
    report = costmodel.predict(layer.eval(), (torch.empty(shape, device="meta"),), hardware="nvidia-h200")
    assert [one.kind for one in report.layers] == [kind]


def test_kinds_that_were_never_measured_are_named_and_their_interval_is_wide() -> None:
    """Of a GRU of 50 steps: 100 launches in a row, each at least as long as the smallest kernel."""
    report = costmodel.predict(nn.GRU(32, 32).eval(), (torch.empty(50, 4, 32, device="meta"),), hardware="nvidia-h200")
    assert "never measured, so predicted by traffic, arithmetic and launches: gru" in report.warnings
    assert report.unsupported == ()
    assert report.extrapolated_share > 0.9
    eager = report.modes["eager"]
    assert eager.device_ms * 1e3 >= 100 * profile_of("nvidia-h200").predictor.roofline.floor_us
    assert eager.high_ms / eager.latency_ms > 4**0.25  # a factor of 4 in the time of nearly all, a quarter correlated


def test_an_operator_that_the_table_lacks_is_called_by_compiled_code() -> None:
    row = operators.lookup(Op("0", "no_such_operator", (), ()))
    assert (row.role, row.supported) == (operators.Role.EXTERN, False)
