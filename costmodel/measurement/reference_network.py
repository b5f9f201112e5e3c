"""Reference network of the host probe, whose eager pass loads a host's CPU as passes of models do.

A loop of launches stays in the CPU's first-level caches and measures the driver alone. A model calls different
operators through Python and ATen's dispatcher, and slows down more when other processes use the same caches. Between
two processes on a busy machine, eager latencies of a model differ by a quarter; divided by the time of a launch, by an
eighth; divided by the time of this pass, by a sixteenth.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

LAUNCHES = 480.0
"""Time of the pass in launches of a one-element addition, on idle hosts of H200s."""
CHANNELS, HEADS, DEPTH, PIXELS = 32, 4, 6, 32


class _Convolutions(nn.Module):
    """Residual block: convolution, depthwise convolution, and squeeze-and-excitation."""

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
    """Transformer block with attention as matmuls and a softmax."""

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
    """Six blocks of either kind on small images: about 340 operator calls, views included, and little arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.convolutions = nn.Sequential(*(_Convolutions() for _ in range(DEPTH)))
        self.attentions = nn.Sequential(*(_Attention() for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(CHANNELS), nn.Linear(2 * CHANNELS, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute logits, (images, 10), of images, (images, 3, 32, 32)."""
        x = self.convolutions(self.stem(x))
        y = self.attentions(x.flatten(2).transpose(1, 2))
        logits: torch.Tensor = self.head(torch.cat([x.mean((2, 3)), self.norm(y).mean(1)], dim=1))
        return logits


@functools.cache
def reference_pass(device: str) -> Callable[[], torch.Tensor]:
    """Build the reference network on a device, and return a warmed-up call; the caller's random state is kept."""
    with torch.random.fork_rng(devices=[]):
        network = ReferenceNetwork().eval().to(device, torch.float32)
    image = torch.ones(1, 3, PIXELS, PIXELS, device=device, dtype=torch.float32)
    call = torch.no_grad()(functools.partial(network, image))
    for _ in range(3):
        call()
    return call
