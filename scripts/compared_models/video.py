"""Three-dimensional convolutions, interpolation and a reduction over time."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Video(nn.Module):
    """Clips of eight frames to maps of two scales."""

    def __init__(self) -> None:
        super().__init__()
        self.spatial = nn.Conv3d(3, 24, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        self.temporal = nn.Conv3d(24, 24, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.norm = nn.BatchNorm3d(24)
        self.head = nn.Conv2d(24, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps of half the input's size, and of its size."""
        x = self.norm(self.temporal(self.spatial(x).relu())).relu().mean(2)
        x = self.head(functional.leaky_relu(x, 0.1))
        return x, functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def batch_1() -> tuple[nn.Module, torch.Tensor]:
    """One clip."""
    return Video(), torch.zeros(1, 3, 8, 112, 112)


def batch_32() -> tuple[nn.Module, torch.Tensor]:
    """32 clips."""
    return Video(), torch.zeros(32, 3, 8, 112, 112)
