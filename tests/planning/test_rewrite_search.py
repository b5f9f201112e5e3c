"""Search of rewrites against brute force, with an independent value for each place."""

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel.capture.executable import capture_exactly
from costmodel.planning import rewrite_search
from costmodel.planning.rewrite_search import HOPELESS, PLACED, least, try_rewrites
from costmodel.rewrites.registry import REWRITES, apply_rewrites
from tests.rewrites.test_conv1x1_to_matmul import Squeezed
from tests.rewrites.test_merge_sibling_convs import Inception

FOLD = ("fold_batch_norm",)
NET = nn.Sequential(nn.BatchNorm2d(6), Squeezed(6, 3), Inception())
GRAPH = capture_exactly(NET.eval(), (torch.empty(2, 6, 5, 5),), "net").graph
PLACES = {name: REWRITES[name].places(apply_rewrites(GRAPH, FOLD)) for name in PLACED}


def rewritten(rewrites):
    return apply_rewrites(GRAPH, rewrites)


def chosen(rewrites):
    """Pairs of a rewrite and a place where it is applied."""
    found = set()
    for text in rewrites:
        name, _, listed = text.partition(":")
        known = REWRITES[name].places(apply_rewrites(GRAPH, FOLD))
        found |= {(name, place) for place in (listed.split(",") if listed else known)}
    return found


def test_the_graph_has_places_for_every_rewrite():
    assert [len(PLACES[name]) for name in PLACED] == [2, 1, 2, 1]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_places_are_chosen_as_brute_force_does_where_they_are_independent(seed):
    """Values of 100, plus or minus up to 1 for each place, so that no rewrite is hopeless."""
    pairs = [(name, place) for name in PLACED for place in PLACES[name]]
    gain = {pair: random.Random(f"{seed} {pair}").uniform(-1, 1) for pair in pairs}

    def value(rewrites):
        return 100 + sum(gain[pair] for pair in chosen(rewrites)) + 10 * (FOLD[0] not in rewrites)

    tried = try_rewrites(rewritten, (FOLD, ()), lambda rewrites: rewrites, value)
    subsets = itertools.chain.from_iterable(itertools.combinations(pairs, size) for size in range(len(pairs) + 1))
    assert min(value(rewrites) for rewrites, _ in tried) == pytest.approx(
        min(100 + sum(gain[pair] for pair in subset) for subset in subsets)
    )
    assert len(dict(tried)) == len(tried)


@pytest.mark.parametrize(("worse", "single"), [(HOPELESS - 0.01, True), (HOPELESS + 0.01, False)])
def test_what_is_hopeless_everywhere_is_not_tried_place_by_place(worse, single):
    for base in (1.0, 4.0, 0.25):
        tried = dict(
            try_rewrites(rewritten, (FOLD,), len, lambda count, base=base: base * (1.0 if count == 1 else worse))
        )
        assert any(":" in rewrite for rewrites in tried for rewrite in rewrites) == single


def test_many_places_are_taken_all_or_none(monkeypatch):
    monkeypatch.setattr(rewrite_search, "MOST_PLACES", 1)
    tried = [rewrites for rewrites, _ in try_rewrites(rewritten, (FOLD,), len, lambda count: 1.0 / count)]
    assert tried == [(*FOLD, *PLACED[:number]) for number in range(5)]


def test_of_values_that_differ_by_rounding_the_first_is_the_least():
    assert least(["a", "b", "c"], {"a": 2.0, "b": 1.0 + 1e-7, "c": 1.0}.__getitem__) == "b"
    assert least(["a", "b"], {"a": 1.0 + 1e-5, "b": 1.0}.__getitem__) == "b"


def test_a_rewrite_that_changes_nothing_but_rounding_is_not_applied():
    sizes: dict[tuple[str, ...], float] = {}

    def value(rewrites):
        return 100.0 - 1e-10 * sizes.setdefault(rewrites, len(sizes))

    tried = try_rewrites(rewritten, (FOLD,), lambda rewrites: rewrites, value)
    assert least([rewrites for rewrites, _ in tried], value) == FOLD
