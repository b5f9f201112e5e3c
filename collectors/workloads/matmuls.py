"""Matmuls: linear layers and batched matmuls, sizes drawn log-uniformly."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from collectors.workloads.cases import UnitCase
from costmodel.ir import Graph, Op, Ref, TensorType, Value

MOST_WORK = 1 << 38
MOST_ELEMENTS = 1 << 27


def linear_graph(rows: int, inner: int, columns: int, dtype: str, bias: bool) -> Graph:
    """`addmm` (with a bias) or `mm` on a transposed weight, as `nn.Linear` calls them."""
    result = TensorType(dtype, (rows, columns))
    values = [Value("a0", TensorType(dtype, (rows, inner))), Value("p0", TensorType(dtype, (columns, inner)), "param")]
    view = Op("0", "t", (("self", Ref("p0")),), (TensorType(dtype, (inner, columns), "strided"),))
    if not bias:
        product = Op("1", "mm", (("self", Ref("a0")), ("mat2", Ref("0"))), (result,))
        return Graph("", tuple(values), (view, product), (Ref("1"),))
    values.append(Value("p1", TensorType(dtype, (columns,)), "param"))
    args = (("self", Ref("p1")), ("mat1", Ref("a0")), ("mat2", Ref("0")))
    return Graph("", tuple(values), (view, Op("1", "addmm", args, (result,))), (Ref("1"),))


def batched_graph(batch: int, rows: int, inner: int, columns: int, dtype: str) -> Graph:
    """`bmm` of two activations."""
    values = (
        Value("a0", TensorType(dtype, (batch, rows, inner))),
        Value("a1", TensorType(dtype, (batch, inner, columns))),
    )
    result = TensorType(dtype, (batch, rows, columns))
    return Graph("", values, (Op("0", "bmm", (("self", Ref("a0")), ("mat2", Ref("a1"))), (result,)),), (Ref("0"),))


def sample(count: int, seed: int) -> Iterator[UnitCase]:
    """Random cases: two thirds linear, one third batched, and some that are classifiers of a model."""
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    made = 0
    while made < count:
        dtype = rng.choices(("float32", "float16", "bfloat16"), (50, 35, 15))[0]
        last = rng.random() < CLASSIFIERS
        rows, inner, columns = _classifier(rng) if last else (_rows(rng), _width(rng), _width(rng))
        batch = 1 if last or rng.random() < 0.67 else round(2 ** rng.uniform(1, 11))
        if batch * rows * inner * columns > MOST_WORK:
            continue
        if max(batch * rows * max(inner, columns), inner * columns) > MOST_ELEMENTS:
            continue
        if batch > 1 and batch * min(inner, 1024) * min(columns, 4096) > MOST_ELEMENTS:
            continue
        if batch == 1:
            graph = linear_graph(rows, inner, columns, dtype, bias=rng.random() < 0.7)
        else:
            graph = batched_graph(batch, min(rows, 4096), min(inner, 1024), min(columns, 4096), dtype)
        made += 1
        yield UnitCase(str(graph), "aten", source="matmul")


TOKENS = (1, 49, 50, 64, 196, 197, 256, 784, 1024, 3136)
"""Numbers of tokens that models make of an image, equally likely."""
MIXED_TOKENS = 0.08
"""Share of widths that are numbers of tokens, as in layers that mix tokens instead of channels."""
CLASSIFIERS = 0.1
"""Share of matmuls of a classifier, which has one row per image and may be as wide as a feature map has elements."""
IMAGES = (1, 1, 8, 16, 32, 32, 64, 128)
CLASSES = (1000, 1000, 1000, 4096, 10, 100, 512, 1280, 2048, 21841)
"""Outputs of a classifier: classes, or features if another layer follows."""
WIDEST = 1 << 15
"""Largest number of elements of a feature map that a classifier takes."""


def _classifier(rng: random.Random) -> tuple[int, int, int]:
    """Rows, inner size and columns of a classifier's matmul."""
    inner = 2 ** rng.uniform(7, math.log2(WIDEST))
    return rng.choice(IMAGES), max(64, round(inner / 64) * 64), rng.choice(CLASSES)


def _rows(rng: random.Random) -> int:
    return rng.choice(TOKENS) * rng.choice((1, 1, 2, 4, 8, 16, 32, 32, 64))


def _width(rng: random.Random) -> int:
    if rng.random() < MIXED_TOKENS:
        return rng.choice(TOKENS[1:])
    raw = 2 ** rng.uniform(4, 12.5)
    step = rng.choices((8, 32, 64, 4, 1), (30, 30, 30, 5, 5))[0]
    return max(step, round(raw / step) * step)
