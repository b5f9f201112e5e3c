"""Blocks of vision models of random widths, for what torch.compile fuses in them: norms, gates, shuffles, windows.

Models that fuse a kind of kernel are of few families, so that without one of them little is left to learn the kind
from: GroupNorm over one group is poolformer's, shifted windows are swin's, shuffled channels shufflenet's. Here each
kind of block is built of widths, sizes and parts drawn by lot. Two of a kind follow each other behind a convolution or
a linear layer, so that what lies between blocks is fused, and lies in memory, as in a model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from collectors.cases import Case
from collectors.harvest import harvest
from collectors.typical import IMAGES, map_width
from costmodel.capture import capture
from costmodel.errors import CostmodelError

MOST_ELEMENTS = 1 << 25
"""Of a block's input."""
WIDENED = 3
"""A layer's widest tensors hold about so many times the input's elements."""
Activation = Callable[[], nn.Module]
ACTIVATIONS: tuple[Activation, ...] = (nn.ReLU, nn.ReLU, nn.SiLU, nn.GELU, nn.Hardswish, nn.ReLU6)


@dataclass(frozen=True, slots=True)
class Feature:
    """What a block reads and makes: a map of so many channels, square, and what follows its convolutions."""

    width: int
    size: int
    act: Activation


class Scaled(nn.Module):
    """x + scale * branch(x), the scale one number for each channel: along `axis`; without one, x + branch(x).

    Touvron et al., "Going deeper with image transformers", ICCV 2021.
    """

    def __init__(self, branch: nn.Module, width: int, axis: int, has_scale: bool) -> None:
        super().__init__()
        self.branch = branch
        shape = (1, width, 1, 1) if axis == 1 else (width,)
        self.scale = nn.Parameter(torch.ones(shape)) if has_scale else None

    def forward(self, x: Tensor) -> Tensor:
        """Of x's shape."""
        made: Tensor = self.branch(x)
        return x + made if self.scale is None else x + self.scale * made


class Pooled(nn.Module):
    """What the mean of a window is beside its middle. Yu et al., "MetaFormer is actually what you need", CVPR 2022."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of x's shape."""
        made: Tensor = self.pool(x)
        return made - x


class ChannelNorm(nn.LayerNorm):
    """LayerNorm of the channels of a map, which are moved last and back."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - its parent's name
        """Of the input's shape."""
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Transposed(nn.Module):
    """A module that sees (batch, width, tokens) of (batch, tokens, width). Tolstikhin et al., "MLP-Mixer", 2021."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Of x's shape."""
        made: Tensor = self.inner(x.transpose(1, 2))
        return made.transpose(1, 2)


class Attention(nn.Module):
    """Attention of all tokens to all, from one linear layer. Dosovitskiy et al., "An image is worth ...", 2021."""

    def __init__(self, width: int, heads: int, has_bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.project = nn.Linear(width, 3 * width, bias=has_bias), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) -> the same."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        made = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        result: Tensor = self.project(made)
        return result


class Windows(nn.Module):
    """Attention inside windows of a map whose channels are last, shifted by half a window or not, with a bias.

    Liu et al., "Swin transformer", ICCV 2021.
    """

    def __init__(self, width: int, heads: int, window: int, size: int, shift: int) -> None:
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        tokens, across = window * window, size // window
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        self.index = nn.Buffer(torch.zeros(tokens * tokens, dtype=torch.int64))
        self.mask = nn.Buffer(torch.zeros(across * across, tokens, tokens))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, size, size, width) -> the same."""
        batch, size, _, width = x.shape
        across, tokens = size // self.window, self.window * self.window
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        cut = x.view(batch, across, self.window, across, self.window, width).permute(0, 1, 3, 2, 4, 5)
        cut = cut.reshape(batch * across * across, tokens, width)
        q, k, v = self.qkv(cut).reshape(-1, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (width // self.heads) ** -0.5).matmul(k.transpose(-2, -1))
        scores = scores + self.table[self.index].view(tokens, tokens, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        if self.shift:
            scores = scores.view(-1, across * across, self.heads, tokens, tokens) + self.mask[:, None]
            scores = scores.view(-1, self.heads, tokens, tokens)
        made = scores.softmax(-1).matmul(v).transpose(1, 2).reshape(-1, tokens, width)
        made = self.project(made).view(batch, across, across, self.window, self.window, width)
        made = made.permute(0, 1, 3, 2, 4, 5).reshape(batch, size, size, width)
        return torch.roll(made, (self.shift, self.shift), (1, 2)) if self.shift else made


class Merge(nn.Module):
    """Four neighbours of a map whose channels are last as one of twice the width. Liu et al., 2021, as above."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, size, size, width) -> (batch, size / 2, size / 2, 2 width)."""
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        made: Tensor = self.reduce(self.norm(torch.cat(corners, -1)))
        return made


class Shuffle(nn.Module):
    """Half of the channels convolved, joined with the other half, and the two dealt out in turn.

    Ma et al., "ShuffleNet V2", ECCV 2018.
    """

    def __init__(self, width: int, act: Activation) -> None:
        super().__init__()
        half = width // 2
        self.branch = nn.Sequential(
            *convolved(half, half, act), *convolved(half, half, None, 3, half), *convolved(half, half, act)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Of x's shape, the channels even."""
        kept, changed = x.chunk(2, 1)
        joined = torch.cat((kept, self.branch(changed)), 1)
        batch, width, height, across = joined.shape
        return joined.view(batch, 2, width // 2, height, across).transpose(1, 2).reshape(batch, width, height, across)


class Gate(nn.Module):
    """Every channel multiplied by what its mean tells. Hu et al., "Squeeze-and-excitation networks", CVPR 2018."""

    def __init__(self, width: int, middle: int, act: Activation, gate: Activation) -> None:
        super().__init__()
        self.tell = nn.Sequential(nn.Conv2d(width, middle, 1), act(), nn.Conv2d(middle, width, 1), gate())

    def forward(self, x: Tensor) -> Tensor:
        """Of x's shape."""
        made: Tensor = x * self.tell(x.mean((2, 3), keepdim=True))
        return made


class Parallel(nn.Module):
    """The sum of branches, and what follows it. Ding et al., "RepVGG", CVPR 2021."""

    def __init__(self, branches: list[nn.Module], act: Activation) -> None:
        super().__init__()
        self.branches, self.act = nn.ModuleList(branches), act()

    def forward(self, x: Tensor) -> Tensor:
        """What each branch makes, summed."""
        first, *rest = [branch(x) for branch in self.branches]
        for other in rest:
            first = first + other
        result: Tensor = self.act(first)
        return result


class ChannelsLast(nn.Module):
    """A module that sees a map with its channels moved last. Liu et al., "A ConvNet for the 2020s", CVPR 2022."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) -> the same."""
        made: Tensor = self.inner(x.permute(0, 2, 3, 1))
        return made.permute(0, 3, 1, 2)


class Moved(nn.Module):
    """A map as tokens, or with its channels last."""

    def __init__(self, to_tokens: bool) -> None:
        super().__init__()
        self.to_tokens = to_tokens

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) -> (batch, tokens, channels) or (batch, height, width, channels)."""
        return x.flatten(2).transpose(1, 2) if self.to_tokens else x.permute(0, 2, 3, 1)


def convolved(
    width: int, out: int, act: Activation | None, kernel: int = 1, groups: int = 1, stride: int = 1
) -> list[nn.Module]:
    """A convolution, its norm and its activation."""
    conv = nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out), *([act()] if act else [])]


def perceptron(width: int, ratio: float, act: Activation, by_convolution: bool = False) -> nn.Sequential:
    """Two layers over the channels, with an activation between: linear ones, or convolutions of one pixel."""
    middle = max(8, round(width * ratio))
    if by_convolution:
        return nn.Sequential(nn.Conv2d(width, middle, 1), act(), nn.Conv2d(middle, width, 1))
    return nn.Sequential(nn.Linear(width, middle), act(), nn.Linear(middle, width))


def sample(count: int, seed: int, device: str = "cuda", dtype: torch.dtype | None = None) -> Iterator[Case]:
    """The kernels of `count` pairs of blocks drawn repeatably, eager and compiled.

    Args:
        count: of pairs.
        seed: of the lots.
        device: where they will be measured.
        dtype: of all; by lot, mostly float16, if it is None.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable is what it should be
    made = 0
    while made < count:
        halvings = rng.choices((2, 3, 4, 5), (25, 27, 30, 18))[0]
        size = -(-rng.choice(IMAGES) >> halvings)
        feature = Feature(map_width(rng, halvings), size, rng.choice(ACTIVATIONS))
        batch = rng.choices((32, 1, 8, 64, 128), (50, 20, 15, 5, 10))[0]
        precision = dtype or rng.choices((torch.float16, torch.float32), (70, 30))[0]
        if batch * feature.width * size * size > MOST_ELEMENTS // WIDENED:
            continue
        with torch.device("meta"):
            pair = _pair(rng, feature).eval().to(precision)
            inputs = (torch.empty(batch, feature.width, size, size, dtype=precision),)
        try:
            graph = capture(pair, inputs, "block")
        except CostmodelError:  # a window larger than its map, say
            continue
        made += 1
        yield from harvest(graph, "mixers", device)


def _pair(rng: random.Random, feature: Feature) -> nn.Sequential:
    """Two blocks of a kind behind a layer that makes their input."""
    make = rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
    first = nn.Conv2d(feature.width, feature.width, rng.choice((1, 3)), padding="same", bias=rng.random() < 0.5)
    return nn.Sequential(first, *make(rng, feature))


def _norm(rng: random.Random, width: int) -> nn.Module:
    groups = rng.choice([one for one in (1, 1, 1, 8, 16, 32) if width % one == 0])
    kind = rng.choices(("group", "channel", "batch"), (60, 25, 15))[0]
    if kind == "group":
        return nn.GroupNorm(groups, width)
    return ChannelNorm(width) if kind == "channel" else nn.BatchNorm2d(width)


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
    blocks: list[nn.Module] = [nn.Conv2d(feature.width, width, 1), Moved(to_tokens=False)]
    if size != feature.size:
        blocks.insert(0, nn.AdaptiveAvgPool2d(size))
    for shift in shifts:
        mix, mlp = Windows(width, heads, window, size, shift), perceptron(width, 4, nn.GELU)
        blocks += [Scaled(nn.Sequential(nn.LayerNorm(width), one), width, -1, has_scale) for one in (mix, mlp)]
    return [*blocks, Merge(width)] if size % 2 == 0 else blocks


def _tokens(rng: random.Random, feature: Feature) -> list[nn.Module]:
    """Perceptrons over tokens and over channels in turn."""
    width, tokens, has_scale = feature.width, feature.size**2, rng.random() < 0.3
    blocks: list[nn.Module] = [Moved(to_tokens=True)]
    for _ in range(2):
        mixes = Transposed(perceptron(tokens, rng.choice((0.5, 2, 4)), nn.GELU)), perceptron(width, 4, nn.GELU)
        blocks += [Scaled(nn.Sequential(nn.LayerNorm(width), mix), width, -1, has_scale) for mix in mixes]
    return blocks


def _encoders(rng: random.Random, feature: Feature) -> list[nn.Module]:
    wide = rng.choice((16, 32, 64, 64, 48))
    heads, has_scale = max(1, feature.width // wide), rng.random() < 0.3
    width = heads * wide
    blocks: list[nn.Module] = [nn.Conv2d(feature.width, width, 1), Moved(to_tokens=True)]
    for _ in range(2):
        mix, mlp = Attention(width, heads, rng.random() < 0.8), perceptron(width, rng.choice((4, 3)), nn.GELU)
        blocks += [Scaled(nn.Sequential(nn.LayerNorm(width), one), width, -1, has_scale) for one in (mix, mlp)]
    return [*blocks, nn.LayerNorm(width)]


def _shuffles(_rng: random.Random, feature: Feature) -> list[nn.Module]:
    width = feature.width // 2 * 2
    return [nn.Conv2d(feature.width, width, 1), *(Shuffle(width, feature.act) for _ in range(2))]


def _gated(rng: random.Random, feature: Feature) -> list[nn.Module]:
    """A wide depthwise convolution with a gate between two narrow layers."""
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
    """Layers after which a map is half as large."""
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
"""How many of a hundred pairs are of each kind."""
