"""Matrix products: linear layers and batched products, sizes drawn log-uniformly."""

from __future__ import annotations

import random
from collections.abc import Iterator

from collectors.cases import Case
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


def sample(count: int, seed: int) -> Iterator[Case]:
    """`count` cases drawn repeatably: two thirds linear, one third batched."""
    rng = random.Random(seed)  # noqa: S311 - repeatable is what it should be
    made = 0
    while made < count:
        dtype = rng.choices(("float32", "float16", "bfloat16"), (50, 35, 15))[0]
        rows, inner, columns = _rows(rng), _width(rng), _width(rng)
        batch = 1 if rng.random() < 0.67 else round(2 ** rng.uniform(1, 11))
        if batch * rows * inner * columns > MOST_WORK or batch * rows * max(inner, columns) > MOST_ELEMENTS:
            continue
        if batch > 1 and batch * min(inner, 1024) * min(columns, 4096) > MOST_ELEMENTS:
            continue
        if batch == 1:
            graph = linear_graph(rows, inner, columns, dtype, bias=rng.random() < 0.7)
        else:
            graph = batched_graph(batch, min(rows, 4096), min(inner, 1024), min(columns, 4096), dtype)
        made += 1
        yield Case(str(graph), "aten", source="matmul")


TOKENS = (1, 49, 50, 64, 196, 197, 256, 784, 1024, 3136)
"""What a model makes of an image, as many in each."""
MIXED_TOKENS = 0.08
"""So many widths are numbers of tokens, as where a layer mixes tokens and not channels."""


def _rows(rng: random.Random) -> int:
    return rng.choice(TOKENS) * rng.choice((1, 1, 2, 4, 8, 16, 32, 32, 64))


def _width(rng: random.Random) -> int:
    if rng.random() < MIXED_TOKENS:
        return rng.choice(TOKENS[1:])
    raw = 2 ** rng.uniform(4, 12.5)
    step = rng.choices((8, 32, 64, 4, 1), (30, 30, 30, 5, 5))[0]
    return max(step, round(raw / step) * step)
