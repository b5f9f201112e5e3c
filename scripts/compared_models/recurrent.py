"""A recurrent network over a sequence of frames' features."""

from __future__ import annotations

import torch
from torch import nn


class Frames(nn.Module):
    """A convolution over time, a bidirectional LSTM, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm = nn.LSTM(128, 96, batch_first=True, bidirectional=True)
        self.head = nn.Linear(192, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 64, frames] -> [batch, 5]."""
        x = self.conv(x).relu().transpose(1, 2)
        return self.head(self.lstm(x)[0].mean(1))


def batch_1() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """One clip of 20 frames."""
    return Frames(), (torch.zeros(1, 64, 20),)


def batch_32() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """32 clips."""
    return Frames(), (torch.zeros(32, 64, 20),)
