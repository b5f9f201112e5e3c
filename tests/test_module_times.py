"""Host time by module: calls that nest, what the clock adds, and a model whose modules are put back."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from collectors import module_times


def test_a_module_has_what_its_calls_do_not_take():
    events = [(1, 2_000, 5_000), (2, 6_000, 10_000), (0, 1_000, 13_000)]  # nanoseconds; 0 calls 1 and then 2
    assert module_times.own_times(events, 0.0) == pytest.approx({1: 3.0, 2: 4.0, 0: 5.0})


def test_clocks_of_calls_are_taken_off_their_caller():
    events = [(1, 2_000, 5_000), (2, 6_000, 10_000), (0, 1_000, 13_000)]
    assert module_times.own_times(events, 0.5) == pytest.approx({1: 3.0, 2: 4.0, 0: 4.0})


def test_a_module_called_twice_has_the_sum():
    assert module_times.own_times([(1, 0, 1_000), (1, 2_000, 5_000)], 0.0) == {1: 4.0}


Tree = list["Tree"]


@given(st.recursive(st.just([]), lambda trees: st.lists(trees, max_size=4), max_leaves=20))
def test_all_own_times_are_the_whole(tree: Tree):
    events: list[module_times.Event] = []
    clock = iter(range(0, 10**9, 1_000))

    def call(calls: Tree) -> None:
        begin = next(clock)
        for one in calls:
            call(one)
        events.append((len(events), begin, next(clock)))

    call(tree)
    own = module_times.own_times(events, 0.0)
    assert sum(own.values()) == pytest.approx((events[-1][2] - events[-1][1]) / 1e3)
    assert min(own.values()) >= 1.0


class Slow(nn.Module):
    """Takes 2 ms itself, and what its child takes."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """ReLU, late."""
        time.sleep(0.002)
        return self.child(x)


def test_what_a_module_sleeps_is_its_own_and_the_model_is_as_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module_times, "PASSES", 3)
    model = nn.Sequential(Slow(), nn.Identity()).eval()
    found = module_times.module_times(model, torch.zeros(2), "cpu")
    assert {name: kind for name, (kind, _) in found.items()} == {
        "": "Sequential",
        "0": "Slow",
        "0.child": "ReLU",
        "1": "Identity",
    }
    assert found["0"][1] > 2_000
    assert found["0.child"][1] < 2_000
    assert all("forward" not in vars(one) for one in model.modules())
