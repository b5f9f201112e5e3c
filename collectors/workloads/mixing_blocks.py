"""Pairs of blocks of random widths that mix tokens or channels, for the kernels that torch.compile fuses in them.

A kind of fused kernel occurs in few families of models, so holding out one leaves little to learn the kind from:
GroupNorm over one group is poolformer's, shifted windows are swin's, shuffled channels shufflenet's. Here each kind of
block has random widths, sizes and parts (`collectors/workloads/block_parts.py`). Two blocks of a kind follow a
convolution, so that fusion between blocks, and memory layout, are as in a model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from collectors.workloads.block_parts import (
    Activation,
    Attention,
    ChannelsLast,
    Gate,
    Merge,
    Parallel,
    Pooled,
    Scaled,
    Shuffle,
    Transposed,
    Windows,
    convolved,
    perceptron,
)
from collectors.workloads.cases import UnitCase
from collectors.workloads.from_models import harvest
from collectors.workloads.model_like_convolutions import IMAGES, map_width
from collectors.workloads.single_operators import Apply
from costmodel.capture.trace import capture
from costmodel.errors import CostmodelError

MOST_ELEMENTS = (1 << 25) // 3
"""Largest size of a block's input; the widest tensors of its layers have some three times as many elements."""
ACTIVATIONS: tuple[Activation, ...] = (nn.ReLU, nn.ReLU, nn.SiLU, nn.GELU, nn.Hardswish, nn.ReLU6)


@dataclass(frozen=True, slots=True)
class Feature:
    """Square feature map that a block reads and writes, and the activation after its convolutions."""

    width: int
    size: int
    act: Activation


def sample(count: int, seed: int, device: str = "cuda", dtype: torch.dtype | None = None) -> Iterator[UnitCase]:
    """Kernels of `count` random pairs of blocks, eager and compiled.

    Args:
        count: number of pairs.
        seed: random seed.
        device: device that will measure them.
        dtype: element type of all; if None, drawn at random, mostly float16.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    made = 0
    while made < count:
        halvings = rng.choices((2, 3, 4, 5), (25, 27, 30, 18))[0]
        size = -(-rng.choice(IMAGES) >> halvings)
        feature = Feature(map_width(rng, halvings), size, rng.choice(ACTIVATIONS))
        batch = rng.choices((32, 1, 8, 64, 128), (50, 20, 15, 5, 10))[0]
        precision = dtype or rng.choices((torch.float16, torch.float32), (70, 30))[0]
        if batch * feature.width * size * size > MOST_ELEMENTS:
            continue
        with torch.device("meta"):
            pair = _pair(rng, feature).eval().to(precision)
            inputs = (torch.empty(batch, feature.width, size, size, dtype=precision),)
        try:
            graph = capture(pair, inputs, "block")
        except CostmodelError:  # for example a window larger than its feature map
            continue
        made += 1
        yield from harvest(graph, "mixers", device)


def _pair(rng: random.Random, feature: Feature) -> nn.Sequential:
    """Two blocks of a kind after a convolution that makes their input."""
    make = rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
    first = nn.Conv2d(feature.width, feature.width, rng.choice((1, 3)), padding="same", bias=rng.random() < 0.5)
    return nn.Sequential(first, *make(rng, feature))


def _as_tokens(x: Tensor) -> Tensor:
    """(batch, channels, height, width) -> (batch, tokens, channels)."""
    return x.flatten(2).transpose(1, 2)


def _channels_last(x: Tensor) -> Tensor:
    """(batch, channels, height, width) -> (batch, height, width, channels)."""
    return x.permute(0, 2, 3, 1)


def _norm(rng: random.Random, width: int) -> nn.Module:
    groups = rng.choice([one for one in (1, 1, 1, 8, 16, 32) if width % one == 0])
    kind = rng.choices(("group", "channel", "batch"), (60, 25, 15))[0]
    if kind == "group":
        return nn.GroupNorm(groups, width)
    return ChannelsLast(nn.LayerNorm(width)) if kind == "channel" else nn.BatchNorm2d(width)


def _pooled(rng: random.Random, feature: Feature) -> list[nn.Module]:
    width, has_scale, ratio = feature.width, rng.random() < 0.6, rng.choice((4, 4, 3, 2))
    blocks: list[nn.Module] = []
    for _ in range(2):
        mix, mlp = Pooled(), perceptron(width, ratio, nn.GELU, by_convolution=True)
        blocks += [Scaled(nn.Sequential(_norm(rng, width), one), width, 1, has_scale) for one in (mix, mlp)]
    return blocks


def _windows(rng: random.Random, feature: Feature) -> list[nn.Module]:
    wide, window = rng.choice((16, 24, 32, 32, 48)), rng.choice((7, 7, 7, 8, 8, 4, 6, 12))
    heads = max(1, feature.width // wide)
    width, size = heads * wide, max(2, round(feature.size / window)) * window
    shifts, has_scale = rng.choice(((0, window // 2), (0, window // 2), (0, 0))), rng.random() < 0.2
    blocks: list[nn.Module] = [nn.Conv2d(feature.width, width, 1), Apply(_channels_last)]
    if size != feature.size:
        blocks.insert(0, nn.AdaptiveAvgPool2d(size))
    for shift in shifts:
        mix, mlp = Windows(width, heads, window, size, shift), perceptron(width, 4, nn.GELU)
        blocks += [Scaled(nn.Sequential(nn.LayerNorm(width), one), width, -1, has_scale) for one in (mix, mlp)]
    return [*blocks, Merge(width)] if size % 2 == 0 else blocks


def _tokens(rng: random.Random, feature: Feature) -> list[nn.Module]:
    """Perceptrons over tokens and over channels in turn."""
    width, tokens, has_scale = feature.width, feature.size**2, rng.random() < 0.3
    blocks: list[nn.Module] = [Apply(_as_tokens)]
    for _ in range(2):
        mixes = Transposed(perceptron(tokens, rng.choice((0.5, 2, 4)), nn.GELU)), perceptron(width, 4, nn.GELU)
        blocks += [Scaled(nn.Sequential(nn.LayerNorm(width), mix), width, -1, has_scale) for mix in mixes]
    return blocks


def _encoders(rng: random.Random, feature: Feature) -> list[nn.Module]:
    wide = rng.choice((16, 32, 64, 64, 48))
    heads, has_scale = max(1, feature.width // wide), rng.random() < 0.3
    width = heads * wide
    blocks: list[nn.Module] = [nn.Conv2d(feature.width, width, 1), Apply(_as_tokens)]
    for _ in range(2):
        mix, mlp = Attention(width, heads, rng.random() < 0.8), perceptron(width, rng.choice((4, 3)), nn.GELU)
        blocks += [Scaled(nn.Sequential(nn.LayerNorm(width), one), width, -1, has_scale) for one in (mix, mlp)]
    return [*blocks, nn.LayerNorm(width)]


def _shuffles(_rng: random.Random, feature: Feature) -> list[nn.Module]:
    width = feature.width // 2 * 2
    return [nn.Conv2d(feature.width, width, 1), *(Shuffle(width, feature.act) for _ in range(2))]


def _gated(rng: random.Random, feature: Feature) -> list[nn.Module]:
    """Wide depthwise convolutions with a gate between two narrow layers."""
    width, wide = feature.width, round(feature.width * rng.choice((1, 3, 4, 6)))
    middle, gate = max(4, width // rng.choice((4, 8, 16))), rng.choice((nn.Sigmoid, nn.Sigmoid, nn.Hardsigmoid))
    blocks = []
    for _ in range(2):
        parts = [*convolved(width, wide, feature.act), *convolved(wide, wide, feature.act, rng.choice((3, 5)), wide)]
        parts += [Gate(wide, middle, feature.act, gate), *convolved(wide, width, None)]
        blocks.append(Scaled(nn.Sequential(*parts), width, 1, has_scale=False))
    return list(blocks)


def _parallel(_rng: random.Random, feature: Feature) -> list[nn.Module]:
    width = feature.width

    def branches() -> list[nn.Module]:
        return [nn.Sequential(*convolved(width, width, None, kernel)) for kernel in (3, 1)] + [nn.BatchNorm2d(width)]

    return [Parallel(branches(), feature.act) for _ in range(2)]


def _residual(rng: random.Random, feature: Feature) -> list[nn.Module]:
    width, middle = feature.width, max(8, feature.width // rng.choice((1, 2, 4)))
    groups = rng.choice([one for one in (1, 1, 1, 32) if middle % one == 0])

    def block() -> nn.Module:
        parts = [*convolved(width, middle, feature.act), *convolved(middle, middle, feature.act, 3, groups)]
        gate = [Gate(width, max(4, width // 16), feature.act, nn.Sigmoid)] if gated else []
        return nn.Sequential(*parts, *convolved(middle, width, None), *gate)

    gated = rng.random() < 0.2
    return [Parallel([block(), nn.Identity()], feature.act) for _ in range(2)]


def _preactivated(_rng: random.Random, feature: Feature) -> list[nn.Module]:
    """Norm and activation before each convolution. He et al., "Identity mappings ...", ECCV 2016."""
    width = feature.width

    def block() -> nn.Module:
        before = (nn.BatchNorm2d(width), feature.act(), nn.Conv2d(width, width, 3, padding=1, bias=False))
        return nn.Sequential(*before, nn.BatchNorm2d(width), feature.act(), nn.Conv2d(width, width, 1, bias=False))

    return [Scaled(block(), width, 1, has_scale=False) for _ in range(2)]


def _modern(rng: random.Random, feature: Feature) -> list[nn.Module]:
    """A depthwise convolution, and a perceptron on channels moved last."""
    width, has_scale = feature.width, rng.random() < 0.7
    blocks = []
    for _ in range(2):
        depthwise = nn.Conv2d(width, width, rng.choice((7, 7, 5, 3)), padding="same", groups=width)
        after = nn.Sequential(nn.LayerNorm(width), *perceptron(width, 4, nn.GELU))
        blocks.append(Scaled(nn.Sequential(depthwise, ChannelsLast(after)), width, 1, has_scale))
    return list(blocks)


def _shrunk(rng: random.Random, feature: Feature) -> list[nn.Module]:
    """Layers that halve a feature map."""
    width, kernel = feature.width, rng.choice((3, 3, 2))
    pool = (nn.MaxPool2d, nn.AvgPool2d)[rng.random() < 0.4](kernel, 2, kernel // 2 if kernel == 3 else 0)
    wide = round(width * rng.choice((1, 1.5, 2)))
    return [nn.BatchNorm2d(width), feature.act(), pool, *convolved(width, wide, feature.act, 3, stride=2)]


KINDS: Mapping[Callable[[random.Random, Feature], list[nn.Module]], int] = {
    _pooled: 13,
    _windows: 16,
    _tokens: 8,
    _encoders: 9,
    _shuffles: 10,
    _gated: 9,
    _parallel: 8,
    _residual: 9,
    _preactivated: 5,
    _modern: 8,
    _shrunk: 5,
}
"""Percentage of each kind among pairs."""
