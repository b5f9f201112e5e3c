"""Variants by hand, and against Dynamo itself on shapes in any order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel.prediction.recompilation import MOST_VARIANTS, Recompilations, recompilations


def image(batch: int, size: int = 8) -> tuple[int, ...]:
    return (batch, 3, size, size)


@pytest.mark.parametrize(
    ("shapes", "variants"),
    [
        ([image(4)] * 3, [image(4)]),
        ([image(4), image(8), image(16), image(4)], [image(4), (None, 3, 8, 8)]),
        ([image(1), image(8), image(16)], [image(1), (None, 3, 8, 8)]),
        ([image(8), image(1), image(4)], [image(8), image(1), (None, 3, 8, 8)]),  # one image is a case of its own
        ([image(8), image(8, 16), image(2, 16)], [image(8), (8, 3, None, None), (None, 3, None, None)]),
    ],
)
def test_by_hand(shapes: list[tuple[int, ...]], variants: list[tuple[int | None, ...]]):
    assert recompilations(shapes) == Recompilations(tuple(variants))


def test_after_too_many_variants_it_runs_eagerly():
    found = recompilations([(4, 1), (1, 4), (2, 2), (1, 1)], most=3)
    assert (len(found.variants), found.eager) == (3, ((1, 1),))


def compiled_times(shapes: list[tuple[int, ...]]) -> int:
    """How often Dynamo compiles."""
    torch._dynamo.reset()
    count = 0

    def backend(module: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        nonlocal count
        count += 1
        return module

    net = torch.compile(nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.ReLU()).eval(), backend=backend)
    with torch.no_grad():
        for shape in shapes:
            net(torch.zeros(shape))
    torch._dynamo.reset()
    return count


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([1, 2, 4, 6]), st.sampled_from([4, 6, 8])), min_size=1, max_size=6))
def test_as_often_as_dynamo(sizes: list[tuple[int, int]]):
    shapes = [image(*one) for one in sizes]
    found = recompilations(shapes)
    assert len(found.variants) == compiled_times(shapes) <= MOST_VARIANTS
