"""A print amid the pass: one graph break, the same result."""

from __future__ import annotations

import torch
from torch import nn


class Printing(nn.Module):
    """Two convolutions and a print of a shape and of a value between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3)
        self.second = nn.Conv2d(16, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sixteen maps."""
        x = self.first(x).relu()
        print("activations", tuple(x.shape), x.dtype)
        return self.second(x).relu()


def build() -> nn.Module:
    """The network."""
    return Printing()
