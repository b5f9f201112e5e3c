"""Modules of the papers' examples, written anew: small networks with one structure each."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn


class Sequence(nn.Module):
    """Operators one after the other (Dighe, figure 4.5)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 15 * 15, 10), nn.ReLU()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class scores of images."""
        result: torch.Tensor = self.layers(x)
        return result


class Residual(nn.Module):
    """A block with a shortcut that has a convolution of its own (figure 4.7)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64))
        self.shortcut = nn.Sequential(nn.Conv2d(3, 64, 1), nn.BatchNorm2d(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sum of both paths, rectified."""
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


class TwoInputs(nn.Module):
    """Two inputs, each with a path of its own (figure 4.11)."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64))
        self.other = nn.Conv2d(3, 64, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Sum of the paths."""
        result: torch.Tensor = self.one(x) + self.other(y)
        return result


class TwoOutputs(nn.Module):
    """One input, two results (figure 4.14)."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64))
        self.other = nn.Conv2d(3, 64, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Results of both paths."""
        return self.one(x), self.other(x)


class Recurrent(nn.Module):
    """A layer with more results than are used (figure 4.17)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(28, 32, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs of a sequence."""
        out: torch.Tensor
        out, _ = self.lstm(x, None)
        return out


class Fused(nn.Module):
    """Two sums with a common operand, which no split-joins express (figure 4.21)."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both sums."""
        common = self.g(x)
        return common + self.f(x), common + torch.relu(x)


IMAGE = (1, 3, 32, 32)
STREAMS: Mapping[str, tuple[type[nn.Module], tuple[tuple[int, ...], ...]]] = {
    "sequence": (Sequence, (IMAGE,)),
    "residual": (Residual, (IMAGE,)),
    "two-inputs": (TwoInputs, (IMAGE, IMAGE)),
    "two-outputs": (TwoOutputs, (IMAGE,)),
    "lstm": (Recurrent, ((1, 3, 28),)),
    "fused": (Fused, ((3, 4),)),
}
"""Examples of Dighe (2024), section 4.3, with the shapes of their inputs."""


class Branching(nn.Module):
    """A branch on the values of a tensor between two products, after the toy example of both slide decks."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Scaled product, with the sign of one factor changed if its sum is negative."""
        scaled = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return scaled * b


def retraced(x: torch.Tensor, n: int) -> torch.Tensor:
    """Function whose Python branch depends on a number (slide on retracing)."""
    squared = x**2
    if n >= 0:
        return (n + 1) * squared
    return squared / n


class SharedOperand(nn.Module):
    """Sums of one matrix with T vectors, through tanh: T activations of T x N from 2TN values (Zheng 2023)."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.count = count
        self.matrix = nn.Linear(width, width, bias=False)
        self.vectors = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Scores of all pairs; x and y are (T, N)."""
        keys, queries = self.matrix(x), self.vectors(y)
        return torch.cat([self.score(torch.tanh(keys + queries[i : i + 1])) for i in range(self.count)])


class SingleSum(nn.Module):
    """tanh(X + Y), where recomputation would need two tensors to save one (Zheng 2023)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Scores of x and y, both (T, N)."""
        result: torch.Tensor = self.score(torch.tanh(self.left(x) + self.right(y)))
        return result
