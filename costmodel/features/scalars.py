"""Scalars that features of several groups are computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costmodel.ir import Graph, Op, Ref, TensorType


def log2_of(value: float) -> float:
    """Binary logarithm of value + 1, so that 0 gives 0."""
    return math.log2(value + 1.0)


def operand(graph: Graph, op: Op, *names: str) -> TensorType:
    """Type of the first of the named arguments that is a tensor, else of the result."""
    for name in names:
        ref = op.arg(name)
        if isinstance(ref, Ref):
            return graph.type_of(ref)
    return op.type


def number(value: object, default: float = 0.0) -> float:
    """An argument as a number, the first of a tuple; the default for anything else."""
    if isinstance(value, tuple):
        value = value[0] if value else default
    return float(value) if isinstance(value, (int, float)) else default


def largest(value: object) -> float:
    """Largest number of an argument; 0 without any."""
    return max((number(item) for item in value), default=0.0) if isinstance(value, tuple) else number(value)


def odd(size: int) -> float:
    """Misalignment of rows for vectorised loads: 0 for lengths that are multiples of 8, to 3 for odd ones."""
    return float(size % 8 != 0) + float(size % 4 != 0) + float(size % 2 != 0)


def side(sizes: Sequence[int]) -> float:
    """Side of a square kernel of the same area."""
    length: float = math.prod(sizes) ** (1 / len(sizes))
    return length


def elongation(sizes: Sequence[int]) -> float:
    """Binary logarithm of width over height: 0 for a square, below 0 for a tall kernel."""
    return math.log2(sizes[-1] / sizes[0])


def tiling(rows: int, columns: int, inner: int, batch: int, multiprocessors: int) -> dict[str, float]:
    """Dimensions of a matmul, and the waves of its 64 x 64 and 128 x 128 tiles on the device."""
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
    """Elements of a pooling window; 0 for operators without one."""
    size = op.arg("kernel_size")
    return math.prod(item for item in size if isinstance(item, int)) if isinstance(size, tuple) else 0
