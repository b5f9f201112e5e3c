"""A pass of a small network that asks of a host what passes of models do: how fast a host is, it tells.

A launch in a loop stays in the CPU's first caches and says what the driver takes; a model calls one operator after
another, through Python and ATen's dispatcher, and slows down by more when others use the same caches. Between two
processes on a busy machine eager latencies of a model differ by a quarter, after division by a launch's time by an
eighth, by this pass's time by a sixteenth (`scripts/host_probe.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

LAUNCHES = 480.0
"""On quiet hosts of H200s the pass takes as long as so many launches of a one-element addition."""
CHANNELS, HEADS, DEPTH, PIXELS = 32, 4, 6, 32


class _Convolutions(nn.Module):
    """A residual block: convolution, depthwise convolution, and a gate of a mean."""

    def __init__(self) -> None:
        super().__init__()
        plain = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        depthwise = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, bias=False)
        self.plain = nn.Sequential(plain, nn.BatchNorm2d(CHANNELS), nn.ReLU(inplace=True))
        self.depthwise = nn.Sequential(depthwise, nn.BatchNorm2d(CHANNELS))
        self.gate = nn.Conv2d(CHANNELS, CHANNELS, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.depthwise(self.plain(x))
        y = y * torch.sigmoid(self.gate(y.mean((2, 3), keepdim=True)))
        return torch.relu(x + y)


class _Attention(nn.Module):
    """A transformer's block, whose attention is products and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        self.qkv, self.out = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        first, second = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.mlp = nn.Sequential(first, nn.GELU(), nn.Dropout(0.1), second)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, length, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q * 0.5 @ k.transpose(-2, -1)).softmax(dim=-1)
        y: torch.Tensor = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        z: torch.Tensor = y + self.mlp(self.mlp_norm(y))
        return z


class ReferenceNetwork(nn.Module):
    """Six blocks of either kind on a few pixels: some 340 calls of operators, views included, next to no arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.convolutions = nn.Sequential(*(_Convolutions() for _ in range(DEPTH)))
        self.attentions = nn.Sequential(*(_Attention() for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(CHANNELS), nn.Linear(2 * CHANNELS, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits, (images, 10), of images, (images, 3, 32, 32)."""
        x = self.convolutions(self.stem(x))
        y = self.attentions(x.flatten(2).transpose(1, 2))
        logits: torch.Tensor = self.head(torch.cat([x.mean((2, 3)), self.norm(y).mean(1)], dim=1))
        return logits


@functools.cache
def reference_pass(device: str) -> Callable[[], torch.Tensor]:
    """The call of an eager pass on a device, warmed up; the caller's random numbers are as they were."""
    with torch.random.fork_rng(devices=[]):
        network = ReferenceNetwork().eval().to(device, torch.float32)
    image = torch.ones(1, 3, PIXELS, PIXELS, device=device, dtype=torch.float32)
    call = torch.no_grad()(functools.partial(network, image))
    for _ in range(3):
        call()
    return call
