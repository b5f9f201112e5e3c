"""Random single convolutions with the shapes that vision models use.

`collectors.workloads.convolution_space` draws every parameter independently, so few of its units look like a layer.
Here a feature map has the size of an image of a usual size after some halvings, and a width that models use there; the
output is as wide, or a usual multiple. Kernels are drawn, not taken from models, so held-out families stay unseen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from collectors.workloads.cases import UnitCase, draw_distinct
from collectors.workloads.convolution_space import LEAST_WORK, MOST_ELEMENTS, ConvUnit, Outline, bare_graph, fused_graph

MOST_WORK = 1 << 37
"""Largest number of multiply-accumulates: some 7 ms on an H200 in float32."""
Kind = Callable[[random.Random, ConvUnit, int], ConvUnit]
"""Draws a layer from a 3x3 one that keeps the number of channels, after so many halvings of the image."""
IMAGES = (224,) * 10 + (256,) * 4 + (288,) * 2 + (160, 192, 240, 299, 320, 384)
"""Heights and widths of images, weighted by how many models are made for them."""
STEPS = {8: 32, 16: 23, 32: 13, 64: 18, 4: 10, 2: 4}
"""Widths are multiples of a key, with its value as percentage."""
RATIOS = (1 / 6, 1 / 4, 1 / 4, 1 / 2, 1 / 2, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0)
"""Output over input channels of 1x1 convolutions: bottlenecks and their inverse."""
STEMS = (
    (3, 2, 1),
    (3, 1, 1),
    (7, 2, 3),
    (4, 4, 0),
    (7, 4, 3),
    (16, 16, 0),
    (6, 2, 2),
    (11, 4, 2),
    (5, 2, 2),
    (8, 8, 0),
)
"""Kernel, stride and padding of convolutions on images."""
OUTLINES: tuple[Outline, ...] = ("wide", "tall")
DEPTHWISE_OBLONG = 0.2
"""Share of depthwise convolutions among those whose kernel is not square."""
HEAD_SIZES = (28, 32, 56, 64, 64, 96, 112, 128, 128, 160, 224, 224, 256, 256, 320, 384, 512)
HEAD_WIDTHS = (8, 16, 16, 24, 32, 32, 32, 48, 64, 64, 64, 64, 96, 128, 128, 192, 256, 512)
HEAD_OUTPUTS = (1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6, 7, 8, 12)
"""Sizes, input and output channels of layers that end a decoder."""
GROUP_WIDTHS = (4, 8, 8, 16, 16, 24, 32, 40, 48, 56, 64, 72, 88, 112, 120, 168)


def sample(count: int, seed: int, dtype: str | None = None, kinds: Mapping[Kind, int] | None = None) -> list[UnitCase]:
    """Different random kernels: single convolutions in both layouts, and cuDNN's fused ones.

    Args:
        count: number of cases.
        seed: random seed.
        dtype: element type of all; if None, drawn at random, mostly float32.
        kinds: weight of each kind to draw; KINDS by default.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    return draw_distinct(count, lambda: _drawn(rng, dtype, kinds or KINDS))


def _drawn(rng: random.Random, dtype: str | None, kinds: Mapping[Kind, int]) -> list[UnitCase]:
    """One random kernel; none if it is too large, too small or impossible."""
    unit = _draw(rng, kinds)
    unit = replace(unit, dtype=dtype or unit.dtype)
    if min(unit.out_shape) < 1 or unit.elements > MOST_ELEMENTS or not LEAST_WORK <= unit.work <= MOST_WORK:
        return []
    return [_case(unit, rng)]


def _case(unit: ConvUnit, rng: random.Random) -> UnitCase:
    """The unit in a random way: as a compiled model calls it, as eager execution does, or cuDNN's fused kernel."""
    way = rng.choices(("nhwc", "nchw", "fused"), (50, 40, 10))[0]
    graph = fused_graph(replace(unit, batch_norm=False)) if way == "fused" else bare_graph(unit, way)
    return UnitCase(str(graph), "aten", source="conv")


def _draw(rng: random.Random, kinds: Mapping[Kind, int]) -> ConvUnit:
    make = rng.choices(tuple(kinds), tuple(kinds.values()))[0]
    halvings = rng.choices((0, 1, 2, 3, 4, 5), (3, 8, 20, 24, 27, 18))[0]
    size = -(-rng.choice(IMAGES) >> halvings)
    width = map_width(rng, halvings)
    layer = make(rng, ConvUnit(1, width, width, size, kernel=3, padding=1), halvings)
    return replace(
        layer,
        batch=rng.choices((32, 1, 8, 16, 64, 128, 4), (46, 30, 7, 4, 5, 6, 2))[0],
        dtype=rng.choices(("float32", "float16", "bfloat16"), (80, 15, 5))[0],
        batch_norm=rng.random() < 0.75,
        residual=rng.random() < 0.3,
    )


def _plain(rng: random.Random, layer: ConvUnit, halvings: int) -> ConvUnit:
    stride, width = rng.choices((1, 2), (82, 18))[0], layer.in_channels
    other = rng.choices((width, 2 * width, width // 2, map_width(rng, halvings)), (55, 12, 8, 25))[0]
    return replace(layer, stride=stride, out_channels=max(1, other))


def _narrowing(rng: random.Random, layer: ConvUnit, _halvings: int) -> ConvUnit:
    """Layer of a dense block: few output channels of many."""
    return replace(layer, out_channels=max(4, 4 * round(layer.in_channels * rng.uniform(1 / 16, 1 / 2) / 4)))


def _pointwise(rng: random.Random, layer: ConvUnit, halvings: int) -> ConvUnit:
    stride, narrow = rng.choices((1, 2), (93, 7))[0], rng.random() < 0.6
    other = round(layer.in_channels * rng.choice(RATIOS)) if narrow else map_width(rng, halvings)
    return replace(layer, kernel=1, padding=0, stride=stride, out_channels=max(1, other))


def _grouped(rng: random.Random, layer: ConvUnit, _halvings: int) -> ConvUnit:
    stride, per_group = rng.choices((1, 2), (75, 25))[0], rng.choice(GROUP_WIDTHS)
    groups = max(2, min(64, round(layer.in_channels / per_group)))
    width, kernel = groups * per_group, rng.choices((3, 1, 5), (80, 15, 5))[0]
    there = replace(layer, kernel=kernel, padding=kernel // 2, stride=stride if kernel > 1 else 1)
    return replace(there, groups=groups, in_channels=width, out_channels=width)


def _depthwise(rng: random.Random, layer: ConvUnit, _halvings: int) -> ConvUnit:
    kernel = rng.choices((3, 5, 7, 9), (50, 25, 20, 5))[0]
    stride = rng.choices((1, 2), (80, 20))[0]
    return replace(layer, kernel=kernel, padding=kernel // 2, stride=stride, groups=layer.in_channels)


def _multiplied(rng: random.Random, layer: ConvUnit, halvings: int) -> ConvUnit:
    """Several outputs of each channel, as stages of few channels begin."""
    made = layer.in_channels * rng.choices((2, 3, 4), (80, 10, 10))[0]
    stride = rng.choices((1, 2), (35, 65))[0]
    return replace(_depthwise(rng, layer, halvings), stride=stride, out_channels=made)


def _large(rng: random.Random, layer: ConvUnit, halvings: int) -> ConvUnit:
    kernel = rng.choices((5, 7), (70, 30))[0]
    other = rng.choice((layer.in_channels, map_width(rng, halvings)))
    return replace(layer, kernel=kernel, padding=kernel // 2, out_channels=other)


def _oblong(rng: random.Random, layer: ConvUnit, halvings: int) -> ConvUnit:
    """Kernel of one row or one column, two of which stand for a large kernel."""
    length, outline = rng.choices((7, 3, 5, 11, 21), (50, 30, 8, 8, 4))[0], rng.choice(OUTLINES)
    there = replace(layer, kernel=length, padding=length // 2, outline=outline)
    if rng.random() < DEPTHWISE_OBLONG:
        return replace(there, groups=layer.in_channels)
    other = rng.choices((layer.in_channels, map_width(rng, halvings)), (70, 30))[0]
    return replace(there, out_channels=other)


def _patch(rng: random.Random, layer: ConvUnit, halvings: int) -> ConvUnit:
    kernel, width = rng.choices((2, 4), (80, 20))[0], layer.in_channels
    other = rng.choice((2 * width, width, map_width(rng, halvings)))
    return replace(layer, kernel=kernel, stride=kernel, padding=0, out_channels=other)


def _stem(rng: random.Random, layer: ConvUnit, _halvings: int) -> ConvUnit:
    size = rng.choice(IMAGES)
    kernel, stride, padding = rng.choice(STEMS)
    width = map_width(rng, 5 if kernel == 16 else 1 if kernel < 4 else 2)
    return replace(layer, size=size, kernel=kernel, stride=stride, padding=padding, in_channels=3, out_channels=width)


def head(rng: random.Random, layer: ConvUnit, _halvings: int) -> ConvUnit:
    """Last layer of a decoder: an image, a mask, or a few maps."""
    size = rng.choice(HEAD_SIZES)
    kernel = rng.choices((3, 1, 5, 7, 9), (45, 30, 8, 12, 5))[0]
    width, made = rng.choice(HEAD_WIDTHS), rng.choice(HEAD_OUTPUTS)
    return replace(layer, size=size, kernel=kernel, padding=kernel // 2, in_channels=width, out_channels=made)


KINDS: Mapping[Kind, int] = {
    _plain: 30,
    _narrowing: 3,
    _pointwise: 26,
    _grouped: 13,
    _depthwise: 7,
    _multiplied: 2,
    _large: 5,
    _oblong: 3,
    _patch: 4,
    _stem: 4,
    head: 3,
}
"""Percentage of each kind."""


def map_width(rng: random.Random, halvings: int) -> int:
    """Draw the channels of a feature map after some halvings, log-uniformly over the range of models."""
    least, most = max(8, 4 << halvings), 64 << max(1, halvings)
    raw = least * math.pow(most / least, rng.random())
    step = rng.choices(tuple(STEPS), tuple(STEPS.values()))[0]
    return max(step, step * round(raw / step))
