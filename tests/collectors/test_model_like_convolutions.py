"""Convolutions with the shapes of models: repeatable, of every kind, and predictable."""

from __future__ import annotations

import random
from collections import Counter

from collectors.workloads import model_like_convolutions
from collectors.workloads.convolution_space import MOST_ELEMENTS
from costmodel.features import group_of
from costmodel.ir import parse
from costmodel.kernels.kernel import Kernel


def test_every_case_is_one_convolution_that_can_be_predicted():
    cases = model_like_convolutions.sample(300, seed=5)
    assert len({case.key for case in cases}) == 300
    for case in cases:
        graph = parse(case.graph)
        assert len(graph.ops) == 1
        assert case.runner == "aten"
        assert group_of(Kernel("aten", graph, ())) == "conv"
        batch, channels, height, width = graph.ops[0].types[0].shape
        assert min(batch, channels, height, width) >= 1
        assert batch * channels * height * width <= MOST_ELEMENTS
        assert (case.source, case.position) == ("conv", None)  # of no model, and so of no family that is left out


def test_the_same_seed_draws_the_same_and_more_of_them_begin_alike():
    some = model_like_convolutions.sample(40, seed=3)
    assert model_like_convolutions.sample(60, seed=3)[:40] == some
    assert model_like_convolutions.sample(40, seed=4) != some


def test_all_are_of_the_precision_that_is_asked_for():
    cases = model_like_convolutions.sample(60, seed=3, dtype="float16")
    assert {value.type.dtype for case in cases for value in parse(case.graph).values} == {"float16"}
    assert [case.graph for case in cases[:20]] == [
        case.graph.replace("bfloat16", "float16").replace("float32", "float16")
        for case in model_like_convolutions.sample(60, seed=3)[:20]
    ]  # the same kernels otherwise


def test_layouts_and_precisions_are_those_of_models():
    cases = model_like_convolutions.sample(2000, seed=1)
    first = [parse(case.graph).values[0].type for case in cases]
    layouts = Counter(kind.layout for kind in first)
    assert 0.35 < layouts["nchw"] / 2000 < 0.5  # 40 of a hundred, and those whose strides do not show the layout
    dtypes = Counter(kind.dtype for kind in first)
    assert set(dtypes) == {"float32", "float16", "bfloat16"}
    assert 0.77 < dtypes["float32"] / 2000 < 0.83
    assert Counter(kind.shape[0] for kind in first).most_common(2)[0][0] == 32


def test_the_smaller_the_map_the_more_channels_it_has():
    rng = random.Random(0)
    widths = {halvings: [model_like_convolutions.map_width(rng, halvings) for _ in range(500)] for halvings in range(6)}
    assert all(width >= 2 for some in widths.values() for width in some)
    means = [sum(some) / 500 for some in widths.values()]
    assert means[1:] == sorted(means[1:])
    assert max(widths[2]) <= 256 + 64
    assert max(widths[5]) <= 2048 + 64
    units = [model_like_convolutions._draw(rng, model_like_convolutions.KINDS) for _ in range(4000)]
    grouped = [unit for unit in units if 1 < unit.groups < unit.in_channels]
    assert grouped
    assert all(unit.in_channels % unit.groups == 0 == unit.out_channels % unit.groups for unit in grouped)
    assert {(unit.kernel, unit.padding) for unit in grouped} == {(1, 0), (3, 1), (5, 2)}
    assert {unit.stride for unit in grouped if unit.kernel == 1} == {1}
    assert any(unit.groups == unit.in_channels for unit in units)
    assert any(unit.in_channels == 3 and unit.stride > 1 for unit in units)
    multiplied = {unit.out_channels / unit.in_channels for unit in units if 3 < unit.groups == unit.in_channels}
    assert multiplied == {1.0, 2.0, 3.0, 4.0}


def test_some_widths_are_multiples_of_4_and_no_more():
    rng = random.Random(0)
    widths = [model_like_convolutions.map_width(rng, 3) for _ in range(4000)]
    share = sum(width % 8 == 4 for width in widths) / 4000
    assert 0.04 < share < 0.08  # half of the 10 of 99 that go by fours, a quarter of the 4 that go by twos


def test_heads_end_in_few_maps_of_an_images_size():
    cases = model_like_convolutions.sample(50, seed=3, kinds={model_like_convolutions.head: 1})
    for case in cases:
        graph = parse(case.graph)
        _, channels, height, width = graph.ops[0].types[0].shape
        assert 1 <= channels <= 12
        assert height == width in model_like_convolutions.HEAD_SIZES
