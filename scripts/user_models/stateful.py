"""State that lives longer than a call, or elsewhere: written inputs and buffers, caches, hooks, tensors on the CPU."""

from __future__ import annotations

from typing import Any

import torch
from three_stages import Small, image, stage
from torch import Tensor, nn


class NormalisesInPlace(Small):
    """Writes into its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x.sub_(0.45).mul_(0.999)
        x = self.s1(x)
        return self.head(self.s3(self.s2(x)).mean((2, 3)))


class CpuTable(Small):
    """A table that stays on the CPU and is moved in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.linspace(0.5, 1.5, 48)

    def between(self, x: Tensor) -> Tensor:
        """Scaled by channel."""
        return x * self.table.to(x.device)[None, :, None, None]


class RunningMean(Small):
    """Keeps a running mean of its features in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(48))

    def between(self, x: Tensor) -> Tensor:
        """Centred."""
        self.memory.mul_(0.9).add_(0.1 * x.mean((0, 2, 3)))
        return x - self.memory[:, None, None]


class CachesGrid(Small):
    """Makes a grid of positions at the first call and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[int, int], Tensor] = {}

    def between(self, x: Tensor) -> Tensor:
        """With positions added."""
        size = (x.shape[-2], x.shape[-1])
        if size not in self.kept:
            rows = torch.linspace(-1, 1, size[0], device=x.device)
            cols = torch.linspace(-1, 1, size[1], device=x.device)
            self.kept[size] = torch.sin(rows[:, None] * 3) * torch.cos(cols[None] * 5)
        return x + self.kept[size]


class Hooks(nn.Module):
    """Features of inner layers by forward hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(stage(3, 48, 2), stage(48, 96, 2), stage(96, 192, 2))
        self.features: dict[str, Tensor] = {}
        for name, layer in self.net.named_children():
            layer.register_forward_hook(self._keep(name))

    def _keep(self, name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            self.features[name] = output

        return hook

    def forward(self, x: Tensor) -> Tensor:
        """Means of all kept features."""
        self.net(x)
        return torch.cat([f.mean((2, 3)) for f in self.features.values()], 1)


def normalises_in_place(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """An input that is written."""
    return NormalisesInPlace().eval(), image(batch)


def cpu_table(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A tensor on the CPU."""
    return CpuTable().eval(), image(batch)


def running_mean(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A buffer that is written."""
    return RunningMean().eval(), image(batch)


def training_mode(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Batch norm in training mode."""
    return Small().train(), image(max(batch, 2))


def caches_grid(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """A result kept between calls."""
    return CachesGrid().eval(), image(batch)


def hooks(batch: int = 1) -> tuple[nn.Module, Tensor]:
    """Forward hooks."""
    return Hooks().eval(), image(batch)
