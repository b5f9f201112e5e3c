"""Control flow that depends on data: torch.compile breaks the graph."""

from __future__ import annotations

import torch
from torch import nn


class Gated(nn.Module):
    """Skips its middle block where the mean activation is small."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, stride=2), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(32, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Eight maps."""
        x = self.stem(x)
        if x.mean() > 0.5:
            x = self.middle(x)
        return self.head(x)


def build() -> nn.Module:
    """The network."""
    return Gated()
