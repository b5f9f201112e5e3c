"""A small U-Net: skip connections are concatenated after upsampling."""

from __future__ import annotations

import torch
from torch import nn


def _double_conv(channels: int, filters: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, filters, 3, padding=1, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(inplace=True),
        nn.Conv2d(filters, filters, 3, padding=1, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Three levels, two classes a pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([_double_conv(3, 32), _double_conv(32, 64), _double_conv(64, 128)])
        self.pool = nn.MaxPool2d(2)
        self.raise_ = nn.ModuleList([nn.ConvTranspose2d(128, 64, 2, stride=2), nn.ConvTranspose2d(64, 32, 2, stride=2)])
        self.up = nn.ModuleList([_double_conv(128, 64), _double_conv(64, 32)])
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of the input's size."""
        first = self.down[0](x)
        second = self.down[1](self.pool(first))
        x = self.down[2](self.pool(second))
        for raise_, up, skip in zip(self.raise_, self.up, (second, first), strict=True):
            x = up(torch.cat([skip, raise_(x)], dim=1))
        return self.head(x)


def build() -> nn.Module:
    """The network."""
    return UNet()
