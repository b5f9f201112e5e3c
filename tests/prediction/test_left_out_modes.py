"""Modes that are left out because a call in them raises an error."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import costmodel


class Averages(nn.Module):
    """A running mean that is replaced in each call, or written in place."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        if self.in_place:
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        else:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


@pytest.mark.parametrize(
    ("in_place", "modes"), [(True, {"eager", "default", "reduce-overhead"}), (False, {"eager", "default"})]
)
def test_a_mode_that_raises_an_error_is_left_out(in_place: bool, modes: set[str]):
    report = costmodel.predict(Averages(in_place=in_place).eval(), (torch.rand(4, 8),), hardware="nvidia-h200")
    assert set(report.modes) == modes
    assert any("reduce-overhead is left out" in warning for warning in report.warnings) != in_place
