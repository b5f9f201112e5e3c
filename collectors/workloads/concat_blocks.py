"""Blocks of random widths whose branches are concatenated: dense blocks, parallel branches, split stages.

Each kind occurs in few families of models, so without these blocks the fusion and copies of a concatenation would be
learnt from one or two families.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from collectors.workloads.cases import UnitCase
from collectors.workloads.from_models import harvest
from costmodel.capture.trace import capture

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (nn.ReLU, nn.ReLU, nn.SiLU, nn.Hardswish, nn.GELU)
MOST_ELEMENTS = 1 << 25
"""Largest size of a block's widest tensor."""


class DenseBlock(nn.Module):
    """Layers that each read the concatenated results of all earlier ones, then a transition to half the size.

    Huang et al., "Densely connected convolutional networks", CVPR 2017.
    """

    def __init__(self, width: int, growth: int, layers: int, bottleneck: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(layers):
            middle = bottleneck * growth or width
            reduce = [nn.Conv2d(width, middle, 1, bias=False), nn.BatchNorm2d(middle), act()] if bottleneck else []
            grow = nn.Conv2d(middle, growth, 3, padding=1, bias=False)
            self.layers.append(nn.Sequential(nn.BatchNorm2d(width), act(), *reduce, grow))
            width += growth
        self.transition = nn.Sequential(nn.BatchNorm2d(width), act(), nn.Conv2d(width, width // 2, 1, bias=False))
        self.pool = nn.AvgPool2d(2, 2, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width, h, w) -> (batch, (width + layers * growth) // 2, h / 2, w / 2)."""
        made = [x]
        for layer in self.layers:
            made.append(layer(torch.cat(made, 1)))
        result: Tensor = self.pool(self.transition(torch.cat(made, 1)))
        return result


class Branches(nn.Module):
    """Parallel chains of convolutions, concatenated. Szegedy et al., "Going deeper with convolutions", CVPR 2015."""

    def __init__(self, width: int, chains: list[list[int]], act: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.chains = nn.ModuleList(chain(width, widths, act) for widths in chains)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width, h, w) -> (batch, sum of the chains' last widths, h, w)."""
        return torch.cat([one(x) for one in self.chains], 1)


class SplitStage(nn.Module):
    """Split of the channels: a chain over one half, whose results are all concatenated before a 1x1 convolution.

    Wang et al., "CSPNet", 2020, and "Designing network design strategies through gradient path analysis", 2022.
    """

    def __init__(self, width: int, inner: int, links: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.open = chain(width, [2 * inner], act, kernel=1)
        self.links = nn.ModuleList(chain(inner, [inner], act) for _ in range(links))
        self.close = chain((2 + links) * inner, [width], act, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, width, h, w) -> (batch, width, h, w)."""
        made = list(self.open(x).chunk(2, 1))
        for link in self.links:
            made.append(link(made[-1]))
        result: Tensor = self.close(torch.cat(made, 1))
        return result


def chain(width: int, widths: list[int], act: Callable[[], nn.Module], kernel: int = 3) -> nn.Sequential:
    """Convolutions, each with its norm and activation; the first of several is 1x1."""
    parts: list[nn.Module] = []
    for index, out in enumerate(widths):
        size = 1 if index == 0 and len(widths) > 1 else kernel
        parts += [nn.Conv2d(width, out, size, padding=size // 2, bias=False), nn.BatchNorm2d(out), act()]
        width = out
    return nn.Sequential(*parts)


def sample(count: int, seed: int, device: str = "cuda", dtype: torch.dtype | None = None) -> Iterator[UnitCase]:
    """Kernels of `count` random blocks, eager and compiled.

    Args:
        count: number of blocks.
        seed: random seed.
        device: device that will measure them.
        dtype: element type of all; if None, drawn at random, mostly float32.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    made = 0
    while made < count:
        width, size = _width(rng, 16, 512), rng.choice((7, 8, 14, 14, 20, 28, 28, 56))
        batch = rng.choice((1, 1, 1, 8, 32))
        precision = dtype or rng.choices((torch.float32, torch.float16), (75, 25))[0]
        if 4 * width * size * size * batch > MOST_ELEMENTS:
            continue
        with torch.device("meta"):
            block = _block(rng, width).eval().to(precision)
            inputs = (torch.empty(batch, width, size, size, dtype=precision),)
        made += 1
        yield from harvest(capture(block, inputs, "block"), "joins", device)


def _block(rng: random.Random, width: int) -> nn.Module:
    act = rng.choice(ACTIVATIONS)
    kind = rng.choices(("dense", "branches", "split"), (60, 25, 15))[0]
    if kind == "dense":
        return DenseBlock(width, _width(rng, 8, 64), rng.randint(2, 20), rng.choice((0, 2, 4, 4)), act)
    if kind == "branches":
        chains = [[_width(rng, 16, 256) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(2, 6))]
        return Branches(width, chains, act)
    return SplitStage(width, _width(rng, 16, 128), rng.randint(1, 6), act)


def _width(rng: random.Random, least: int, most: int) -> int:
    """Draw a width log-uniformly, a multiple of 4 or 8."""
    step = rng.choice((4, 8, 8))
    raw: float = least * (most / least) ** rng.random()
    return max(least, round(raw / step) * step)
