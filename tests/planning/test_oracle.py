"""The oracle against brute force on random trees, and the study's oracles by hand."""

import itertools
import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel.planning import oracle
from costmodel.planning.oracle import STRATEGIES, cost_of, decide
from costmodel.planning.series_parallel import (
    SOURCE,
    BlockDag,
    BlockLeaf,
    BlockPipeline,
    BlockSplitJoin,
    block_tree,
    blocks_of,
)


@dataclass
class Random:
    """Costs drawn by a seed; `fork` is the cost of running branches side by side, infinite for never."""

    seed: int
    ways: int = 2
    fork: float = 1.0

    def draw(self, *what) -> float:
        return random.Random(f"{self.seed} {what}").uniform(0, 10)

    def choices(self, block):
        return tuple("abc"[: self.ways]) if self.draw("ways", block) > 2 else ("a",)

    def run(self, block, choice):
        return self.draw("run", block, choice)

    def edge(self, producer, before, consumer, after):
        return 0.0 if before in (None, after) else self.draw("edge", producer, before, consumer, after)

    def together(self, branches):
        return max(branches) + self.fork


def cost_by_definition(tree, made, costs):
    """Cost of a decision, computed directly from the definition of the tree."""

    def walk(pipeline, last, end):
        total = 0.0
        for element in pipeline.elements:
            join = element if isinstance(element, BlockLeaf) else element.join
            target = end if join is None else join.block
            if isinstance(element, BlockLeaf):
                total += passed(last, target)
            elif isinstance(element, BlockDag):
                total += sum(costs.run(block, made[block]) for block in element.blocks)
                total += sum(passed(last if a == SOURCE else a, b) for a, b in element.edges)
            else:
                each = [walk(branch, last, target) for branch in element.branches]
                total += min(sum(each), costs.together(each))
            if join is None:
                return total
            total += costs.run(target, made[target])
            last = target
        return total if end is None else total + passed(last, end)

    def passed(start, stop):
        return costs.edge(start, made.get(start), stop, made[stop])

    return walk(tree, SOURCE, None)


def brute_force(tree, costs):
    blocks = list(blocks_of(tree))
    return min(
        cost_by_definition(tree, dict(zip(blocks, made, strict=True)), costs)
        for made in itertools.product(*map(costs.choices, blocks))
    )


@st.composite
def trees(draw, most=8):
    count = draw(st.integers(1, most))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    edges = [(i, i + 1) for i in range(count - 1) if draw(st.booleans())]
    return block_tree(count, edges + (draw(st.lists(st.sampled_from(pairs), max_size=8)) if pairs else []))


@settings(max_examples=200, deadline=None)
@given(trees(), st.integers(0, 10**6), st.sampled_from([0.0, 1.0, 5.0, math.inf]), st.sampled_from([2, 3]))
def test_the_program_finds_what_brute_force_finds(tree, seed, fork, ways):
    costs = Random(seed, ways if sum(1 for _ in blocks_of(tree)) < 8 else 2, fork)
    decision = decide(tree, costs)
    assert decision.cost == pytest.approx(brute_force(tree, costs))
    assert cost_by_definition(tree, decision.choices, costs) == pytest.approx(decision.cost)
    assert cost_of(tree, decision.choices, costs) == pytest.approx(decision.cost)
    assert list(decision.choices) == sorted(blocks_of(tree))


@settings(max_examples=50, deadline=None)
@given(trees(), st.integers(0, 10**6))
def test_no_other_strategy_is_cheaper_and_the_bound_is_one(tree, seed):
    costs = Random(seed, fork=math.inf)
    costs_of = {name: strategy(tree, costs).cost for name, strategy in STRATEGIES.items()}
    assert costs_of["theoretical"] <= costs_of["exact"] + 1e-9
    assert costs_of["exact"] <= min(costs_of["best-of-two"], costs_of["published"]) + 1e-9


@dataclass
class Table:
    """Two ways of running each block, and a cost for every switch between them."""

    eager: tuple[float, ...]
    compiled: tuple[float, ...]
    switch: float = 0.0

    def choices(self, block):
        return ("eager", "compiled")

    def run(self, block, choice):
        return (self.eager if choice == "eager" else self.compiled)[block]

    def edge(self, producer, before, consumer, after):
        return self.switch if before not in (None, after) else 0.0

    def together(self, branches):
        return math.inf


ROW = BlockPipeline((BlockLeaf(0), BlockLeaf(1), BlockLeaf(2)))


@pytest.mark.parametrize(
    ("switch", "theoretical", "carried_out", "exact"),
    [
        # minima 1 + 1 + 2; carried out they switch twice; eager throughout 1 + 3 + 2, compiled throughout 4 + 1 + 5
        (0.0, 4.0, 4.0, 4.0),
        (0.5, 4.0, 5.0, 5.0),
        (3.0, 4.0, 10.0, 6.0),
    ],
)
def test_the_studys_oracles_by_hand(switch, theoretical, carried_out, exact):
    costs = Table((1.0, 3.0, 2.0), (4.0, 1.0, 5.0), switch)
    assert STRATEGIES["theoretical"](ROW, costs).cost == theoretical
    assert STRATEGIES["best-of-two"](ROW, costs).cost == carried_out
    assert STRATEGIES["published"](ROW, costs).cost == carried_out
    assert STRATEGIES["exact"](ROW, costs).cost == exact


def test_branches_run_side_by_side_where_that_is_less():
    tree = BlockPipeline(
        (BlockLeaf(0), BlockSplitJoin((BlockPipeline((BlockLeaf(1),)), BlockPipeline((BlockLeaf(2),))), BlockLeaf(3)))
    )

    @dataclass
    class Forking(Table):
        def together(self, branches):
            return max(branches) + 2.0

    times = (1.0, 5.0, 4.0, 1.0)
    assert decide(tree, Forking(times, times)).cost == 1 + 5 + 2 + 1
    short = (1.0, 1.5, 1.0, 1.0)
    assert decide(tree, Forking(short, short)).cost == 1 + 1.5 + 1 + 1  # 2.5 in turn, 3.5 together


def test_a_large_dag_is_searched_block_by_block(monkeypatch):
    count = 7
    tree = block_tree(count, [(i, j) for i in range(count) for j in range(i + 1, count)])
    assert "BlockDag" in repr(tree)
    costs = Table((1.0,) * count, (0.5,) * count, switch=4.0)
    monkeypatch.setattr(oracle, "MOST_COMBINATIONS", 1)
    assert decide(tree, costs).cost == pytest.approx(0.5 * count)  # compiled throughout; any switch costs 4


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_a_large_dag_gets_the_best_of_plain_descents_from_every_choice(seed):
    count = 6
    tree = block_tree(count, [(i, j) for i in range(count) for j in range(i + 1, count)])
    ends, inside = (0, 5), (1, 2, 3, 4)
    assert f"BlockDag(blocks={inside}" in repr(tree)
    costs = Random(seed, ways=3, fork=math.inf)

    def descended(made):
        """Sweeps over the dag's blocks, each by the cost of the whole, until nothing changes."""
        while True:
            before = dict(made)
            for block in inside:
                tried = {way: cost_by_definition(tree, made | {block: way}, costs) for way in costs.choices(block)}
                best = min(tried, key=tried.__getitem__)
                made |= {block: best} if tried[best] < tried[made[block]] - 1e-9 else {}
            if made == before:
                return cost_by_definition(tree, made, costs)

    found = [
        descended(dict(zip(ends, outside, strict=True)) | {i: way if way in costs.choices(i) else "a" for i in inside})
        for outside in itertools.product(*map(costs.choices, ends))
        for way in dict.fromkeys(way for block in inside for way in costs.choices(block))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "MOST_COMBINATIONS", 1)
        assert decide(tree, costs).cost == pytest.approx(min(found))


def test_a_row_of_five_thousand_blocks():
    tree = BlockPipeline(tuple(map(BlockLeaf, range(5000))))
    assert decide(tree, Table((2.0,) * 5000, (1.0,) * 5000, 1.0)).cost == 5000.0
