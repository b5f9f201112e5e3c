"""Costs of blocks from regions whose times are made up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from costmodel.capture.executable import capture_exactly
from costmodel.planning import region_costs
from costmodel.planning.blocks import Block, find_blocks
from costmodel.planning.region_costs import MOST_PARTNERS, BlockCosts, RegionCosts
from costmodel.profiles.profile import load_profile
from costmodel.rewrites.hoist_constants import hoist_constants
from costmodel.rewrites.registry import apply_rewrites
from tests.rewrites.test_conv1x1_to_matmul import Squeezed
from tests.rewrites.test_merge_sibling_convs import Inception

BLOCKS = (Block(("a",), True), Block(("b", "c"), False), Block(("d",), False))
TIMES = {"cudnn": 4.0, "eager": 10.0, "inductor": 6.0}


class Regions:
    """Each operator takes a time by its backend; fused with another block, Inductor's take a quarter less."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def predict_regions(self, regions: Iterable[tuple[str, Sequence[str]]]) -> None:
        self.asked += [(backend, tuple(ops)) for backend, ops in regions]

    def us(self, backend: str, ops: Sequence[str]) -> float:
        fused = backend == "inductor" and not any(tuple(ops) == block.ops for block in BLOCKS)
        return len(ops) * TIMES[backend] * (0.75 if fused else 1.0)

    def share(self, backend: str, ops: Sequence[str]) -> float:
        return {"a": 1.0, "b": 0.25, "d": 0.5}[ops[0]]

    def compile_us(self, ops: Sequence[str]) -> float:
        return 1000.0 * len(ops)


def costs(**fields: Any) -> BlockCosts:
    regions: Any = Regions()
    return BlockCosts(BLOCKS, regions, **({"near": frozenset({(0, 1)})} | fields))


def test_cudnn_runs_what_it_can_fuse_and_eager_comes_before_inductor():
    assert costs().choices(0) == ("cudnn", "eager", "inductor")
    assert costs().choices(1) == ("eager", "inductor")
    assert costs(cudnn=False).choices(0) == ("eager", "inductor")
    assert costs(inductor=False).choices(0) == ("cudnn", "eager")
    assert costs(inductor=False).choices(1) == ("eager",)
    assert costs().choices(3) == (None,)  # the end of the graph
    assert costs().run(3, None) == 0.0


def test_compile_time_is_spread_over_the_calls_of_what_is_compiled():
    assert costs().run(1, "inductor") == 12.0
    assert costs(calls=100).run(1, "inductor") == pytest.approx(12.0 + 2000 / 100)
    assert costs(calls=100).run(1, "eager") == 20.0
    assert costs(calls=100).run(0, "cudnn") == 4.0
    assert costs(calls=math.inf).run(0, "inductor") == 6.0


def test_fusion_across_blocks_gains_where_inductor_compiles_both():
    """Alone 6 and 12, together 18 less a quarter."""
    assert costs().edge(0, "inductor", 1, "inductor") == pytest.approx(-4.5)
    assert costs().edge(0, "inductor", 1, "eager") == 0.0
    assert costs().edge(0, "eager", 1, "inductor") == 0.0
    assert costs().edge(-1, None, 1, "inductor") == 0.0
    assert costs().edge(1, "inductor", 2, "inductor") == 0.0  # not among the pairs


def test_branches_side_by_side_take_the_longest_or_what_fills_the_device():
    """A wait of a microsecond for each branch that takes any time."""
    assert costs(overlap=0.5).together([10.0, 4.0]) == 10.0 + 2
    assert costs(overlap=1.0).together([10.0, 4.0]) == 14.0 + 2
    assert costs(overlap=0.5).together([10.0, 10.0, 10.0]) == 15.0 + 3
    assert costs(overlap=0.5).together([10.0, 0.0]) == 10.0 + 1


def test_a_device_is_filled_as_its_blocks_fill_it_on_average():
    """10 us of a whole device, 20 of a quarter, 10 of a half."""
    assert costs().forking().overlap == pytest.approx((10 + 5 + 5) / 40)
    assert BlockCosts((), Regions(), frozenset()).forking().overlap == 1.0  # type: ignore[arg-type]


def test_fusion_is_considered_with_the_latest_producers():
    count = MOST_PARTNERS + 2
    blocks = tuple(Block((f"o{index}",), False) for index in range(count))
    regions: Any = Regions()
    found = BlockCosts.of(blocks, [(index, count - 1) for index in range(count - 1)], regions)
    assert found.near == {(index, count - 1) for index in range(1, count - 1)}
    asked = regions.asked
    assert asked[: 2 * count] == [(backend, block.ops) for block in blocks for backend in ("eager", "inductor")]
    assert sorted(asked[2 * count :]) == sorted(
        ("inductor", (f"o{index}", f"o{count - 1}")) for index in range(1, count - 1)
    )


REWRITES = (
    ("fold_batch_norm",),
    ("fold_batch_norm", "channels_last"),
    ("fold_batch_norm", "merge_sibling_convs"),
    ("fold_batch_norm", "conv1x1_to_matmul"),
)


def test_region_costs_that_share_cost_the_same_and_compile_less(monkeypatch: pytest.MonkeyPatch):
    model = nn.Sequential(Squeezed(6, 3), Inception()).eval()
    graph = capture_exactly(model, (torch.empty(2, 6, 5, 5),), "net").graph
    profile = load_profile("nvidia-h200")
    first = RegionCosts(graph, profile)
    made = region_costs.kernels_of_part
    compiled: list[str] = []
    monkeypatch.setattr(region_costs, "kernels_of_part", lambda part, *how: compiled.append(how[0]) or made(part, *how))
    counts = {}
    for shared in (True, False):
        found = []
        for rewrites in REWRITES:
            main = hoist_constants(apply_rewrites(graph, rewrites)).main
            costs = RegionCosts(main, profile, first if shared else None)
            found += [costs.us(how, block.ops) for block in find_blocks(main) for how in ("eager", "inductor")]
            found.append(costs.us("inductor", [op.name for op in main.ops]))
        counts[shared] = (found, len(compiled))
        compiled.clear()
    assert counts[True][0] == counts[False][0]
    assert counts[True][1] < counts[False][1]
