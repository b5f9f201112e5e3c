"""Random single operators on feature maps and tokens, as eager execution of vision models calls them.

Most operators beside convolutions and matmuls move memory: norms, additions, concatenations, pooling. A few families of
models have most kernels of a kind, so holding out a family leaves little to learn the kind from. Sizes and widths here
are those of `collectors.workloads.model_like_convolutions`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from collectors.workloads.cases import UnitCase, draw_distinct
from collectors.workloads.model_like_convolutions import IMAGES, map_width
from costmodel.capture.trace import capture
from costmodel.errors import CostmodelError
from costmodel.kernels.eager_dispatch import eager_kernels

MOST_ELEMENTS, LEAST_ELEMENTS = 1 << 28, 1 << 9
"""Limits on the number of elements of an input."""
ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU, nn.ReLU, nn.SiLU, nn.GELU, nn.ReLU6, nn.Hardswish, nn.Sigmoid,
)  # fmt: skip
Shape = tuple[int, ...]
Drawn = tuple[nn.Module, tuple[Shape, ...]]
"""A module, and the shapes of its inputs."""
Draw = Callable[[random.Random, Shape], Drawn]
"""Draws an operator for the shape of a feature map, (batch, channels, height, width)."""


class Apply(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call the function on the inputs."""
        return self.function(*inputs)


def sample(count: int, seed: int, dtype: torch.dtype | None = None) -> list[UnitCase]:
    """Different random kernels in float32 and float16.

    Args:
        count: number of cases.
        seed: random seed.
        dtype: element type of all; if None, drawn at random, mostly float32.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    return draw_distinct(count, lambda: _drawn(rng, dtype))


def _drawn(rng: random.Random, precision: torch.dtype | None) -> list[UnitCase]:
    """Kernels of one draw; none if it is too large, too small or impossible."""
    draw = rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
    halvings = rng.choices((1, 2, 3, 4, 5), (14, 25, 25, 22, 14))[0]
    size = -(-rng.choice(IMAGES) >> halvings)
    batch = rng.choices((32, 1, 8, 64, 128), (50, 25, 10, 5, 10))[0]
    dtype = precision or rng.choices((torch.float32, torch.float16), (85, 15))[0]
    module, shapes = draw(rng, (batch, map_width(rng, halvings), size, size))
    channels_last = len(shapes[0]) == 4 and rng.random() < 0.12
    inputs = [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]
    if channels_last:
        inputs = [one.to(memory_format=torch.channels_last) for one in inputs]
    if not all(LEAST_ELEMENTS <= one.numel() <= MOST_ELEMENTS for one in inputs):
        return []
    try:
        graph = capture(module.eval().to(dtype), tuple(inputs), "map")
    except CostmodelError:  # for example a pooling window larger than its input
        return []
    return [UnitCase(str(kernel.graph), "aten", source="map") for kernel in eager_kernels(graph)]


def _batch_norm(_rng: random.Random, shape: Shape) -> Drawn:
    return nn.BatchNorm2d(shape[1], device="meta"), (shape,)


def _group_norm(rng: random.Random, shape: Shape) -> Drawn:
    groups = rng.choice([one for one in (1, 1, 8, 16, 32) if shape[1] % one == 0])
    return nn.GroupNorm(groups, shape[1], device="meta"), (shape,)


def _layer_norm(rng: random.Random, shape: Shape) -> Drawn:
    batch, channels, height, across = shape
    norm = nn.LayerNorm(channels, device="meta")
    if rng.random() < 0.4:  # on a feature map with channels moved last
        return nn.Sequential(Apply(lambda x: x.permute(0, 2, 3, 1)), norm), (shape,)
    return norm, ((batch, height * across + rng.choice((0, 0, 1)), channels),)


def _activation(rng: random.Random, shape: Shape) -> Drawn:
    return rng.choice(ACTIVATIONS)(), (shape,)


def _sum(rng: random.Random, shape: Shape) -> Drawn:
    if rng.random() < 0.3:
        shape = (shape[0], shape[2] * shape[3], shape[1])
    return Apply(torch.add), (shape, shape)


def _gate(rng: random.Random, shape: Shape) -> Drawn:
    gate = (*shape[:2], 1, 1) if rng.random() < 0.7 else (shape[0], 1, *shape[2:])
    return Apply(torch.mul), (shape, shape if rng.random() < 0.25 else gate)


def _join(rng: random.Random, shape: Shape) -> Drawn:
    parts = rng.choices((2, 3, 4, 5, 6, 8, 12), (40, 15, 20, 8, 7, 5, 5))[0]
    first = shape if rng.random() < 0.4 else (shape[0], max(8, shape[1] // parts // 8 * 8), *shape[2:])
    widths = [first[1]] + [max(4, shape[1] // parts // rng.choice((1, 1, 2)) // 4 * 4) for _ in range(parts - 1)]
    if rng.random() < 0.4:
        widths = [widths[0]] * parts
    return Apply(lambda *all_: torch.cat(all_, 1)), tuple((shape[0], one, *shape[2:]) for one in widths)


def _pool(rng: random.Random, shape: Shape) -> Drawn:
    kernel, stride, padding = rng.choice(((3, 2, 1), (3, 2, 0), (2, 2, 0), (3, 1, 1)))
    if rng.random() < 0.5:
        return nn.MaxPool2d(kernel, stride, padding, ceil_mode=rng.random() < 0.2), (shape,)
    return nn.AvgPool2d(kernel, stride, padding, count_include_pad=rng.random() < 0.5), (shape,)


def _resize(rng: random.Random, shape: Shape) -> Drawn:
    """Resize to the size that a head takes, often that of the feature map; or to a multiple, as decoders do."""
    if rng.random() < 0.5:
        return nn.AdaptiveAvgPool2d(rng.choice((shape[2], shape[2], 7, 6, 14))), (shape,)
    way = rng.choice(("nearest", "bilinear"))
    return nn.Upsample(scale_factor=2, mode=way, align_corners=False if way == "bilinear" else None), (shape,)


def _mean(rng: random.Random, shape: Shape) -> Drawn:
    if rng.random() < 0.3:
        return Apply(lambda x: x.mean(1)), ((shape[0], shape[2] * shape[3], shape[1]),)
    return Apply(lambda x: x.mean((2, 3), keepdim=True)), (shape,)


def _softmax(rng: random.Random, shape: Shape) -> Drawn:
    tokens = rng.choice((49, 64, 196, 197, 16, 144, 256, 784))
    keys = tokens if rng.random() < 0.8 else rng.choice((49, 64, 49))
    windows = max(1, min(64, shape[2] ** 2 // tokens))
    return nn.Softmax(-1), ((shape[0] * windows, rng.choice((1, 2, 3, 4, 6, 8, 12)), tokens, keys),)


def _attention(rng: random.Random, shape: Shape) -> Drawn:
    """Attention on the output of one linear layer, of windows or of all tokens; or with keys of fewer tokens."""
    wide, heads = rng.choices((32, 64, 16, 24, 48), (45, 35, 8, 6, 6))[0], rng.choice((1, 2, 3, 4, 5, 6, 8, 12, 16))
    tokens = rng.choice((49, 64, 196, 197, 196, 197, 50, 144, 256, 577, 784))
    batch = shape[0] * rng.choice((1, 1, 1, 4, 16, 64) if tokens < 100 else (1, 1, 1, 1, 4))
    if rng.random() < 0.15:
        few = rng.choice((49, 64, 1, 196))
        parts = tuple((batch, count, heads * wide) for count in (tokens, few, few))
        return Apply(lambda *qkv: _attend(*(x.unflatten(-1, (heads, wide)).transpose(1, 2) for x in qkv))), parts
    split = (batch, tokens, 3, heads, wide)
    return Apply(lambda x: _attend(*x.view(split).permute(2, 0, 3, 1, 4).unbind(0))), (
        (batch, tokens, 3 * heads * wide),
    )


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v)


def _copy(rng: random.Random, shape: Shape) -> Drawn:
    batch, channels, height, across = shape
    way = rng.choice(("tokens", "map", "heads", "shuffle"))
    if way == "tokens":
        return Apply(lambda x: x.flatten(2).transpose(1, 2).contiguous()), (shape,)
    if way == "map":
        tokens = (batch, height * across, channels)
        return Apply(lambda x: x.transpose(1, 2).reshape(shape).contiguous()), (tokens,)
    if way == "shuffle":
        even = (batch, 2 * (channels // 2), height, across)
        groups = (batch, 2, channels // 2, height, across)
        return Apply(lambda x: x.view(groups).transpose(1, 2).reshape(even)), (even,)
    wide = rng.choice((16, 32, 32, 64))
    heads = (batch, height * across, max(1, channels // wide), wide)
    return Apply(lambda x: x.transpose(1, 2).contiguous()), (heads,)


def _window(rng: random.Random, shape: Shape) -> Drawn:
    """Channels-last feature map rolled, split into windows, or assembled from them."""
    window, way = rng.choice((7, 7, 8, 4, 12)), rng.choice(("roll", "cut", "cut and roll", "join", "join and roll"))
    across = max(1, round(shape[2] / window))
    batch, size, width = shape[0], across * window, shape[1]
    whole, cut = (batch, size, size, width), (batch, across, window, across, window, width)
    parts = (batch, across, across, window, window, width)
    shift = window // 2
    back = rng.choice((shift, -shift))

    def roll(x: Tensor, by: int) -> Tensor:
        return x.roll((by, by), (1, 2)) if "roll" in way else x

    if way == "roll":
        return Apply(lambda x: roll(x, back)), (whole,)
    if "cut" in way:
        return Apply(lambda x: roll(x, -shift).view(cut).permute(0, 1, 3, 2, 4, 5).contiguous()), (whole,)
    return Apply(lambda x: roll(x.permute(0, 1, 3, 2, 4, 5).reshape(whole), shift)), (parts,)


def _corners(_rng: random.Random, shape: Shape) -> Drawn:
    """Channels-last feature map with 2x2 neighbours concatenated into channels."""
    whole = (shape[0], shape[2] // 2 * 2, shape[3] // 2 * 2, shape[1])
    return Apply(lambda x: torch.cat([x[:, a::2, b::2] for b in (0, 1) for a in (0, 1)], -1)), (whole,)


KINDS: Mapping[Draw, int] = {
    _batch_norm: 13,
    _group_norm: 6,
    _layer_norm: 9,
    _activation: 8,
    _sum: 8,
    _gate: 7,
    _join: 12,
    _pool: 8,
    _mean: 5,
    _softmax: 4,
    _copy: 6,
    _attention: 14,
    _window: 5,
    _corners: 2,
    _resize: 3,
}
"""Weight of each kind."""
