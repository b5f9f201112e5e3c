"""Depthwise separable convolutions, squeeze and excitation, channels split and shuffled."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Half of the channels pass through a depthwise convolution, then both halves are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.spatial = nn.Sequential(
            nn.Conv2d(half, half, 3, padding=1, groups=half), nn.BatchNorm2d(half), nn.Hardswish()
        )
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(half, 8, 1), nn.ReLU(), nn.Conv2d(8, half, 1), nn.Hardsigmoid()
        )
        self.mix = nn.Sequential(nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps of the input's shape."""
        kept, x = x.chunk(2, dim=1)
        x = self.spatial(x)
        x = torch.stack([kept, self.mix(x * self.gate(x))], dim=2)
        return x.flatten(1, 2)


def build() -> nn.Module:
    """A stem, six blocks and a classifier."""
    blocks = [Block(64) for _ in range(6)]
    stem = [nn.Conv2d(3, 64, 3, stride=4), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100))
