"""Layouts of convolutions: copies in the graph, equal outputs in float64, and the oracle against brute force."""

import itertools
import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel.capture.executable import capture_exactly
from costmodel.inductor.channels_last import in_channels_last
from costmodel.planning import planner
from costmodel.planning.layout_search import LAYOUTS, LayoutCosts, choose_layouts
from costmodel.planning.oracle import decide
from costmodel.planning.planner import LAST, LEAST_GAIN, PLAIN, make_plan
from costmodel.planning.region_costs import RegionCosts
from costmodel.planning.series_parallel import blocks_of
from costmodel.profiles.profile import load_profile
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from tests.planning.test_oracle import brute_force, cost_by_definition, trees
from tests.rewrites.test_merge_sibling_convs import Inception
from tests.rewrites.test_registry import bases, run


class Row(nn.Module):
    """Three convolutions with their ReLUs, a pool, and a head that takes no image."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 8), (8, 8), (8, 6))])
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        for conv in self.convs:
            x = torch.relu(conv(x))
        return self.head(torch.max_pool2d(x, 2).mean((2, 3)))


def captured(net: nn.Module, x: torch.Tensor):
    exact = capture_exactly(net.eval(), (x,), "net")
    return exact.graph, dict(net.named_parameters()) | dict(net.named_buffers()) | {"x": x}


@pytest.mark.parametrize("chosen", list(itertools.product([False, True], repeat=3)))
def test_copies_stand_where_the_plan_says(chosen):
    torch.manual_seed(0)
    net, x = Row().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    graph, values = captured(net, x)
    names = [op.name for op in graph.ops if op.base == "convolution"]
    wanted = [name for name, last in zip(names, chosen, strict=True) if last]
    mixed = apply_rewrites(graph, (f"channels_last:{','.join(wanted)}",) if wanted else ())
    main = hoist_constants(mixed).main
    copies = sum(a != b for a, b in itertools.pairwise((False, *chosen)))  # the image lies in plain order
    assert bases(main).count("clone") == copies
    assert [op.type.layout for op in main.ops if op.base == "convolution"] == [LAYOUTS[last] for last in chosen]
    with torch.no_grad():
        torch.testing.assert_close(run(mixed, values), net(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("keep", [0, 2, 5])
def test_branches_of_two_layouts_compute_what_eager_does(keep):
    torch.manual_seed(0)
    net, x = Inception().double(), torch.randn(2, 6, 5, 5, dtype=torch.float64)
    graph, values = captured(net, x)
    graph = apply_rewrites(graph, PLAIN)
    names = [op.name for op in graph.ops if op.base == "convolution"]
    mixed = apply_rewrites(
        graph, (f"channels_last:{','.join(names[keep::2])}", "merge_sibling_convs", "sink_epilogues_into_cat")
    )
    with torch.no_grad():
        torch.testing.assert_close(run(mixed, values), run(graph, values), rtol=1e-12, atol=1e-12)


def test_all_named_is_all():
    graph, _ = captured(Row(), torch.empty(2, 3, 8, 8))
    names = [op.name for op in graph.ops if op.base == "convolution"]
    assert in_channels_last(graph, only=names) == in_channels_last(graph)


class Standardised(nn.Module):
    """Two convolutions whose weight is computed anew and is the view of a result, as in networks without norms."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)])

    def forward(self, x):
        for conv in self.convs:
            rows = torch.softmax(conv.weight.reshape(conv.weight.shape[0], -1), 1)
            x = torch.relu(nn.functional.conv2d(x, rows.reshape_as(conv.weight), conv.bias, padding=1))
        return x


def test_a_weight_that_is_a_view_of_what_is_computed_once():
    """In nchw the view is made in each pass; in channels_last the copied weight is hoisted."""
    graph, _ = captured(Standardised(), torch.empty(2, 3, 8, 8))
    profile = load_profile("nvidia-h200")
    plain, last = (
        RegionCosts(hoist_constants(apply_rewrites(graph, rewrites)).main, profile) for rewrites in (PLAIN, LAST)
    )
    assert "view" in bases(plain.main)
    assert "view" not in bases(last.main)
    names = {op.name for op in graph.ops if op.base == "convolution"}
    assert names > set(choose_layouts(plain, last, cudnn=True, fork=False))
    assert make_plan(graph, profile, {}, "2.11").regions


@dataclass
class Drawn:
    """Costs of blocks in one layout, drawn by a seed, with the interface of `BlockCosts`."""

    seed: int
    layout: str
    overlap: float

    def __post_init__(self):
        self.known = {}

    def draw(self, *what) -> float:
        if what not in self.known:
            self.known[what] = random.Random(f"{self.seed} {self.layout} {what}").uniform(0, 10)
        return self.known[what]

    def choices(self, unit):
        return ("cudnn", "inductor") if unit % 2 else ("inductor",)

    def run(self, unit, choice):
        return self.draw(unit, choice)

    def edge(self, producer, before, consumer, after):
        return -self.draw("edge", producer, consumer) / 10 if before == after == "inductor" else 0.0

    def together(self, branches):
        return max(*branches, self.overlap * sum(branches)) + 1.0


@settings(max_examples=200, deadline=None)
@given(trees(4), st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 1.0]))
def test_the_choice_of_backend_and_layout_is_what_brute_force_finds(tree, seed, overlap):
    units = list(blocks_of(tree))
    generator = random.Random(seed)
    copies = {(a, b): generator.uniform(0, 5) for a in (-1, *units) for b in units if generator.random() < 0.8}
    costs = LayoutCosts({layout: Drawn(seed, layout, overlap) for layout in LAYOUTS}, copies)
    decision = decide(tree, costs)
    assert cost_by_definition(tree, decision.choices, costs) == pytest.approx(decision.cost)
    assert decision.cost == pytest.approx(brute_force(tree, costs))


def test_a_copy_is_paid_for_by_a_change_of_layout_and_by_nothing_else():
    costs = LayoutCosts({layout: Drawn(0, layout, 1.0) for layout in LAYOUTS}, {(0, 1): 3.0, (-1, 0): 2.0})
    assert costs.edge(0, ("cudnn", "nchw"), 1, ("cudnn", "nhwc")) == 3.0
    assert costs.edge(0, ("cudnn", "nhwc"), 1, ("cudnn", "nchw")) == 3.0
    assert costs.edge(0, ("cudnn", "nhwc"), 1, ("cudnn", "nhwc")) == 0.0
    assert costs.edge(0, ("inductor", "nhwc"), 1, ("inductor", "nhwc")) < 0.0
    assert costs.edge(-1, None, 0, ("cudnn", "nhwc")) == 2.0
    assert costs.edge(-1, None, 0, ("cudnn", "nchw")) == 0.0
    assert costs.edge(0, ("cudnn", "nhwc"), 1, None) == 0.0  # the graph's end takes either layout


class Fixed(RegionCosts):
    """Region costs where channels_last pays for wide convolutions only, and each copy has a fixed cost."""

    copy_us = 1.0

    def us(self, backend, ops):
        made = [op for op in self.main.ops if op.name in ops and op.base == "convolution"]
        return sum(5.0 if (op.type.layout == "nhwc") == (op.type.shape[1] > 6) else 10.0 for op in made)

    def conversion_us(self, kind):
        return self.copy_us


@pytest.mark.parametrize(("copy_us", "expected"), [(1.0, 2), (20.0, 0)])
def test_convolutions_are_chosen_by_hand(copy_us, expected):
    """5 us in the better layout, else 10: 25 in nchw; 15 with the last in nchw, plus two copies."""
    graph, _ = captured(Row(), torch.empty(2, 3, 8, 8))
    profile = load_profile("nvidia-h200")
    plain, last = (Fixed(hoist_constants(apply_rewrites(graph, rewrites)).main, profile) for rewrites in (PLAIN, LAST))
    plain.copy_us = copy_us
    names = [op.name for op in graph.ops if op.base == "convolution"]
    assert choose_layouts(plain, last, cudnn=True, fork=False) == tuple(names[:expected])


def test_a_model_in_channels_last_order_is_left_so():
    net, x = Row().to(memory_format=torch.channels_last), torch.empty(2, 3, 8, 8).to(memory_format=torch.channels_last)
    graph, _ = captured(net, x)
    region_costs = RegionCosts(hoist_constants(apply_rewrites(graph, PLAIN)).main, load_profile("nvidia-h200"))
    assert choose_layouts(region_costs, region_costs, cudnn=True, fork=True) == ()


def test_a_plan_of_two_layouts_is_no_slower_than_of_one():
    from costmodel import zoo

    loaded = zoo.load("alexnet")
    graph = capture_exactly(loaded.module, loaded.inputs, "alexnet").graph
    profile = load_profile("nvidia-h200")
    plan = make_plan(graph, profile, {}, "2.11")
    single = make_plan(graph, profile, {}, "2.11", "published")
    assert any(rewrite.startswith("channels_last:") for rewrite in plan.rewrites)
    assert plan.latency_ms["plan"] < single.latency_ms["plan"] * (1 - LEAST_GAIN)


def test_what_gains_next_to_nothing_is_not_done(monkeypatch):
    graph, _ = captured(Inception(), torch.empty(1, 6, 28, 28))
    profile = load_profile("nvidia-h200")
    assert "merge_sibling_convs" in " ".join(make_plan(graph, profile, {}, "2.11").rewrites)
    monkeypatch.setattr(planner, "LEAST_GAIN", 0.9)
    assert make_plan(graph, profile, {}, "2.11").rewrites in planner.BASE_SEQUENCES
