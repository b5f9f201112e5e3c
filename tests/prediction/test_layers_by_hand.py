"""Positions of units, by hand."""

from __future__ import annotations

import torch
from torch import nn

from costmodel.capture.trace import capture
from costmodel.prediction.layers import find_units


def test_a_position_is_that_of_the_operator_which_leads_among_all_in_four_digits():
    """Convolutions are operators 0, 2, 4 and 6 of seven: at 0, a third, two thirds, and the end."""
    layers = [layer for _ in range(3) for layer in (nn.Conv2d(3, 3, 1), nn.ReLU())]
    module = nn.Sequential(*layers, nn.Conv2d(3, 3, 1)).eval()
    units = find_units(capture(module, (torch.empty(1, 3, 8, 8, device="meta"),)))
    assert [(unit.name, unit.position) for unit in units] == [("0", 0.0), ("2", 0.3333), ("4", 0.6667), ("6", 1.0)]


def test_a_single_operator_is_at_the_start():
    (unit,) = find_units(capture(nn.ReLU(), (torch.empty(4, device="meta"),)))
    assert (unit.position, unit.kind) == (0.0, "relu")
