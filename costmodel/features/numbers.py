"""Numbers that features of several groups are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costmodel.ir import Graph, Op, Ref, TensorType

TILT = 0.02
"""How much more a flat kernel's width counts than its height."""


def log2_of(value: float) -> float:
    """Binary logarithm of one more, so that nothing is 0."""
    return math.log2(value + 1.0)


def operand(graph: Graph, op: Op, *names: str) -> TensorType:
    """The type of the first of some arguments that is a tensor; that of the result if none is."""
    for name in names:
        ref = op.arg(name)
        if isinstance(ref, Ref):
            return graph.type_of(ref)
    return op.type


def number(value: object, default: float = 0.0) -> float:
    """An argument as a number, the first of several; the default where it is none."""
    if isinstance(value, tuple):
        value = value[0] if value else default
    return float(value) if isinstance(value, (int, float)) else default


def odd(size: int) -> float:
    """How far rows of so many elements keep a kernel from loads of several at once: 0 for multiples of 8, 3 if odd."""
    return float(size % 8 != 0) + float(size % 4 != 0) + float(size % 2 != 0)


def side(sizes: Sequence[int]) -> float:
    """The side of a square kernel of the same area; a wide one counts a little more than a tall one, to be told apart.

    A little, because only few families have kernels that are not square, and what a network has not seen it guesses.
    """
    height, width = sizes[0], sizes[-1]
    side: float = math.prod(sizes) ** (1 / len(sizes))
    return side * (1 + TILT * (width - height) / (width + height))


def tiling(rows: int, columns: int, inner: int, batch: int, multiprocessors: int) -> dict[str, float]:
    """A product's dimensions and how its tiles of 128 x 128 and 64 x 64 fill the device."""
    named = {"log_m": log2_of(rows), "log_n": log2_of(columns), "log_k": log2_of(inner), "log_products": log2_of(batch)}
    for tile in (64, 128):
        waves = batch * math.ceil(rows / tile) * math.ceil(columns / tile) / multiprocessors
        named[f"log_waves_{tile}"] = math.log2(waves)
        named[f"wave_loss_{tile}"] = math.ceil(waves) / waves if waves > 1 else 1.0
    for name, size in (("n", columns), ("k", inner)):
        named[f"{name}_odd"] = odd(size)
        named[f"{name}_by_32"] = float(size % 32 == 0)
    return named


def window(op: Op) -> int:
    """Elements of a pooling's window; 0 for what has none."""
    size = op.arg("kernel_size")
    return math.prod(item for item in size if isinstance(item, int)) if isinstance(size, tuple) else 0
