"""Convolutional network in three stages, which models that are hard to compile extend."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def stage(i: int, o: int, s: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Small(nn.Module):
    """Three stages and a head; subclasses do something between the stages."""

    def __init__(self) -> None:
        super().__init__()
        self.s1, self.s2, self.s3 = stage(3, 48, 2), stage(48, 96, 2), stage(96, 96)
        self.head = nn.Linear(96, 20)
        self.calls = 0

    def between(self, x: Tensor) -> Tensor:
        """Nothing, here."""
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.between(self.s1(x))
        return self.head(self.s3(self.s2(x)).mean((2, 3)))


def image(batch: int, size: int = 160) -> Tensor:
    """Random images."""
    return torch.randn(batch, 3, size, size)
