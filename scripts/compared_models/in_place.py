"""In-place operators, slices that are written to, and a buffer that every call updates."""

from __future__ import annotations

import torch
from torch import nn


class Accumulating(nn.Module):
    """Counts its calls, and doubles half of the channels in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 24, 3, padding=1)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """24 maps."""
        self.calls.add_(1)
        x = self.conv(x)
        x[:, :12].mul_(2)
        return x.clamp_(min=0).add_(1)


def build() -> nn.Module:
    """The network."""
    return Accumulating()
