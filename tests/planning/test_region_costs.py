"""Costs of blocks from regions whose times are made up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from costmodel.planning.blocks import Block
from costmodel.planning.region_costs import MOST_PARTNERS, BlockCosts

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
