"""Modules that blocks of vision models are built of: scaled branches, windows, gates, shuffles, attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]


class Scaled(nn.Module):
    """x + scale * branch(x), with one scale per channel along `axis`; without a scale, x + branch(x).

    Touvron et al., "Going deeper with image transformers", ICCV 2021.
    """

    def __init__(self, branch: nn.Module, width: int, axis: int, has_scale: bool) -> None:
        super().__init__()
        self.branch = branch
        shape = (1, width, 1, 1) if axis == 1 else (width,)
        self.scale = nn.Parameter(torch.ones(shape)) if has_scale else None

    def forward(self, x: Tensor) -> Tensor:
        """X -> a tensor of its shape."""
        made: Tensor = self.branch(x)
        return x + made if self.scale is None else x + self.scale * made


class Pooled(nn.Module):
    """Mean of a window minus its centre. Yu et al., "MetaFormer is actually what you need", CVPR 2022."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x: Tensor) -> Tensor:
        """X -> a tensor of its shape."""
        made: Tensor = self.pool(x)
        return made - x


class Transposed(nn.Module):
    """A module applied with tokens and channels transposed. Tolstikhin et al., "MLP-Mixer", 2021."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """X -> a tensor of its shape."""
        made: Tensor = self.inner(x.transpose(1, 2))
        return made.transpose(1, 2)


class Attention(nn.Module):
    """Attention between all tokens. Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021."""

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
    """Attention inside windows of a channels-last feature map, shifted by half a window or not, with a bias.

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
    """2x2 neighbours of a channels-last feature map merged into one of twice the width. Liu et al., 2021, as above."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, size, size, width) -> (batch, size / 2, size / 2, 2 width)."""
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        made: Tensor = self.reduce(self.norm(torch.cat(corners, -1)))
        return made


class Shuffle(nn.Module):
    """Half of the channels convolved, concatenated with the other half, and the channels of both interleaved.

    Ma et al., "ShuffleNet V2", ECCV 2018.
    """

    def __init__(self, width: int, act: Activation) -> None:
        super().__init__()
        half = width // 2
        self.branch = nn.Sequential(
            *convolved(half, half, act), *convolved(half, half, None, 3, half), *convolved(half, half, act)
        )

    def forward(self, x: Tensor) -> Tensor:
        """X with an even number of channels -> a tensor of its shape."""
        kept, changed = x.chunk(2, 1)
        joined = torch.cat((kept, self.branch(changed)), 1)
        batch, width, height, across = joined.shape
        return joined.view(batch, 2, width // 2, height, across).transpose(1, 2).reshape(batch, width, height, across)


class Gate(nn.Module):
    """Channels multiplied by gates of their means. Hu et al., "Squeeze-and-excitation networks", CVPR 2018."""

    def __init__(self, width: int, middle: int, act: Activation, gate: Activation) -> None:
        super().__init__()
        self.weigh = nn.Sequential(nn.Conv2d(width, middle, 1), act(), nn.Conv2d(middle, width, 1), gate())

    def forward(self, x: Tensor) -> Tensor:
        """X -> a tensor of its shape."""
        made: Tensor = x * self.weigh(x.mean((2, 3), keepdim=True))
        return made


class Parallel(nn.Module):
    """Sum of branches, then an activation. Ding et al., "RepVGG", CVPR 2021."""

    def __init__(self, branches: list[nn.Module], act: Activation) -> None:
        super().__init__()
        self.branches, self.act = nn.ModuleList(branches), act()

    def forward(self, x: Tensor) -> Tensor:
        """X -> act(sum of branches)."""
        first, *rest = [branch(x) for branch in self.branches]
        for other in rest:
            first = first + other
        result: Tensor = self.act(first)
        return result


class ChannelsLast(nn.Module):
    """A module applied with channels moved last. Liu et al., "A ConvNet for the 2020s", CVPR 2022."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) -> the same."""
        made: Tensor = self.inner(x.permute(0, 2, 3, 1))
        return made.permute(0, 3, 1, 2)


def convolved(
    width: int, out: int, act: Activation | None, kernel: int = 1, groups: int = 1, stride: int = 1
) -> list[nn.Module]:
    """Convolution, batch norm and activation."""
    conv = nn.Conv2d(width, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(out), *([act()] if act else [])]


def perceptron(width: int, ratio: float, act: Activation, by_convolution: bool = False) -> nn.Sequential:
    """Two layers over the channels with an activation between: linear, or 1x1 convolutions."""
    middle = max(8, round(width * ratio))
    if by_convolution:
        return nn.Sequential(nn.Conv2d(width, middle, 1), act(), nn.Conv2d(middle, width, 1))
    return nn.Sequential(nn.Linear(width, middle), act(), nn.Linear(middle, width))
