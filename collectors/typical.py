"""Lone convolutions as vision models call them, though no model need have that very one.

`collectors.conv` draws every parameter by itself, so that little of what it draws looks like a layer. Here a feature
map has the size that an image of a usual size has after some halvings, and the width that models give it there; what
comes out is as wide, or a usual multiple. Kernels are drawn, not taken from models: a predictor that learns from them
has still seen nothing of a family that it is to be tried on.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from collectors.cases import Case
from collectors.conv import LEAST_WORK, MOST_ELEMENTS, ConvUnit, bare_graph, fused_graph

MOST_WORK = 1 << 37
"""Multiply-accumulates at most: some 7 ms on an H200 in float32."""
IMAGES = (224,) * 10 + (256,) * 4 + (288,) * 2 + (160, 192, 240, 299, 320, 384)
"""Heights and widths of images, as often as models are made for them."""
KINDS = {"plain": 38, "pointwise": 26, "grouped": 14, "depthwise": 7, "large": 6, "patch": 5, "stem": 4}
"""How many of a hundred kernels are of each kind."""
STEPS = {8: 35, 16: 25, 32: 14, 64: 20, 2: 6}
"""Widths are multiples of these, as often of a hundred."""
RATIOS = (1 / 6, 1 / 4, 1 / 4, 1 / 2, 1 / 2, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0)
"""Channels out over channels in of pointwise convolutions: bottlenecks and what undoes them."""
STEMS = ((3, 2, 1), (3, 1, 1), (7, 2, 3), (4, 4, 0), (7, 4, 3), (16, 16, 0), (6, 2, 2))
"""Kernel, stride and padding of convolutions of images."""
GROUP_WIDTHS = (4, 8, 8, 16, 16, 24, 32, 40, 48, 56, 64, 72, 88, 112, 120, 168)


def sample(count: int, seed: int) -> list[Case]:
    """`count` different kernels, repeatably: single convolutions in both layouts, and cuDNN's fused ones.

    Args:
        count: of cases.
        seed: of the lots.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable is what it should be
    found: dict[str, Case] = {}
    while len(found) < count:
        unit = _draw(rng)
        if unit.out_size >= 1 and unit.elements <= MOST_ELEMENTS and LEAST_WORK <= unit.work <= MOST_WORK:
            case = _case(unit, rng)
            found.setdefault(case.key, case)
    return list(found.values())


def _case(unit: ConvUnit, rng: random.Random) -> Case:
    """The unit in one way by lot: as a compiled model calls it, as an eager one does, or with what follows fused."""
    way = rng.choices(("nhwc", "nchw", "fused"), (50, 40, 10))[0]
    graph = fused_graph(replace(unit, batch_norm=False)) if way == "fused" else bare_graph(unit, way)
    return Case(str(graph), "aten", source="conv")


def _draw(rng: random.Random) -> ConvUnit:
    kind = rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
    halvings = rng.choices((0, 1, 2, 3, 4, 5), (3, 8, 20, 24, 27, 18))[0]
    size = -(-rng.choice(IMAGES) >> halvings)
    width = _width(rng, halvings)
    kernel, stride, padding, groups = 3, 1, 1, 1
    channels = (width, width)
    if kind == "plain":
        stride = rng.choices((1, 2), (82, 18))[0]
        other = rng.choices((width, 2 * width, width // 2, _width(rng, halvings)), (55, 12, 8, 25))[0]
        channels = (width, max(1, other))
    elif kind == "pointwise":
        kernel, padding = 1, 0
        stride = rng.choices((1, 2), (93, 7))[0]
        other = round(width * rng.choice(RATIOS)) if rng.random() < 0.6 else _width(rng, halvings)
        channels = (width, max(1, other))
    elif kind == "grouped":
        stride = rng.choices((1, 2), (75, 25))[0]
        per_group = rng.choice(GROUP_WIDTHS)
        groups = max(2, min(64, round(width / per_group)))
        channels = (groups * per_group,) * 2
    elif kind == "depthwise":
        kernel = rng.choices((3, 5, 7, 9), (50, 25, 20, 5))[0]
        padding, groups = kernel // 2, width
        stride = rng.choices((1, 2), (80, 20))[0]
    elif kind == "large":
        kernel = rng.choices((5, 7), (70, 30))[0]
        padding = kernel // 2
        channels = (width, rng.choice((width, _width(rng, halvings))))
    elif kind == "patch":
        kernel = stride = rng.choices((2, 4), (80, 20))[0]
        padding = 0
        channels = (width, rng.choice((2 * width, width, _width(rng, halvings))))
    else:
        size = rng.choice(IMAGES)
        kernel, stride, padding = rng.choice(STEMS)
        channels = (3, _width(rng, 5 if kernel == 16 else 1 if kernel < 4 else 2))
    return ConvUnit(
        batch=rng.choices((32, 1, 8, 16, 64, 128, 4), (46, 30, 7, 4, 5, 6, 2))[0],
        in_channels=channels[0],
        out_channels=channels[1],
        size=size,
        kernel=kernel,
        stride=stride,
        padding=padding,
        groups=groups,
        dtype=rng.choices(("float32", "float16", "bfloat16"), (80, 15, 5))[0],
        batch_norm=rng.random() < 0.75,
        residual=rng.random() < 0.3,
    )


def _width(rng: random.Random, halvings: int) -> int:
    """Channels of a feature map that has been halved so often: log-uniform over what models have there."""
    least, most = max(8, 4 << halvings), 64 << max(1, halvings)
    raw = least * math.pow(most / least, rng.random())
    step = rng.choices(tuple(STEPS), tuple(STEPS.values()))[0]
    return max(step, step * round(raw / step))
