"""Oracle: choose for every block of a series-parallel tree how it runs, so that the total cost is least.

The module depends on neither torch nor the predictor. A `Costs` object gives the cost of running a block, of passing a
tensor from one block's choice to the next (a layout conversion, a lost fusion), and of branches that run side by side.
`STRATEGIES` also holds the oracles of the study.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from costmodel.planning.series_parallel import SOURCE, BlockDag, BlockLeaf, BlockPipeline, BlockSplitJoin, blocks_of

Choice = Hashable
MOST_COMBINATIONS = 4096
"""A `BlockDag` with more combinations of choices is searched by coordinate descent instead of exhaustively."""
TOLERANCE = 1e-9
"""Smaller gains in cost are rounding."""


class Costs(Protocol):
    """Costs of choices, all in one unit of measure."""

    def choices(self, block: int) -> Sequence[Choice]:
        """Ways to run a block, at least one."""

    def run(self, block: int, choice: Choice) -> float:
        """Cost of running a block."""

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        """Cost of passing a tensor on; the producer may be SOURCE, whose choice is None."""

    def together(self, branches: Sequence[float]) -> float:
        """Cost of branches side by side: at least the largest, and monotonic in each."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice for every block, and the total cost."""

    choices: Mapping[int, Choice]
    cost: float


def decide(tree: BlockPipeline, costs: Costs) -> Decision:
    """Find the cheapest decision by dynamic programming over the tree.

    Exact unless the tree has a `BlockDag` of more than MOST_COMBINATIONS. Time is linear in the number of blocks, and
    cubic in the number of choices of a block.
    """
    found = _Search(costs).whole(tree)
    return Decision(dict(sorted(found.choices(), key=lambda pair: pair[0])), found.cost)


def cost_of(tree: BlockPipeline, choices: Mapping[int, Choice], costs: Costs) -> float:
    """Cost of a decision: blocks, tensors passed on, and branches in turn or side by side, whichever is less."""
    return decide(tree, _Fixed(costs, choices)).cost


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Costs with every choice fixed."""

    costs: Costs
    made: Mapping[int, Choice]

    def choices(self, block: int) -> Sequence[Choice]:
        return (self.made[block],)

    def run(self, block: int, choice: Choice) -> float:
        return self.costs.run(block, choice)

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        return self.costs.edge(producer, before, consumer, after)

    def together(self, branches: Sequence[float]) -> float:
        return self.costs.together(branches)


@dataclass(frozen=True, slots=True)
class _Found:
    """Cost of a partial decision, as its own choices and the partial decisions that it extends."""

    cost: float
    own: tuple[tuple[int, Choice], ...] = ()
    parts: tuple[_Found, ...] = ()

    def choices(self) -> Iterator[tuple[int, Choice]]:
        pending = [self]
        while pending:
            found = pending.pop()
            yield from found.own
            pending.extend(found.parts)


class _Search:
    """Dynamic program: the best decision up to the end of an element, for every choice of the block that ends it."""

    def __init__(self, costs: Costs) -> None:
        self._choices: Callable[[int], Sequence[Choice]] = functools.cache(costs.choices)
        self._run: Callable[[int, Choice], float] = functools.cache(costs.run)
        self._edge: Callable[[int, Choice | None, int, Choice], float] = functools.cache(costs.edge)
        self._together = costs.together
        self._known: dict[tuple[int, Choice | None, int, Choice], _Found] = {}

    def whole(self, tree: BlockPipeline) -> _Found:
        """Best decision for a whole tree."""
        rows, _, _ = self._rows(tree, SOURCE, None)
        return _least(rows.values())

    def _branch(self, tree: BlockPipeline, source: int, before: Choice | None, end: int, after: Choice) -> _Found:
        """Best decision for a branch between a block and a join whose choices are fixed."""
        key = (id(tree), before, end, after)
        if key not in self._known:
            rows, last, rest = self._rows(tree, source, before)
            self._known[key] = self._extended(rows, last, rest, end, after)
        return self._known[key]

    def _rows(
        self, tree: BlockPipeline, source: int, before: Choice | None
    ) -> tuple[dict[Choice | None, _Found], int, BlockSplitJoin | BlockDag | None]:
        """Best decision by choice of the last block; that block; and the element after it that has no join."""
        rows: dict[Choice | None, _Found] = {before: _Found(0.0)}
        last = source
        for element in tree.elements:
            join = element if isinstance(element, BlockLeaf) else element.join
            if join is None:
                return rows, last, element  # type: ignore[return-value]  # not a leaf: its join is None
            inner = None if isinstance(element, BlockLeaf) else element
            rows = {choice: self._ended(rows, last, inner, join.block, choice) for choice in self._choices(join.block)}
            last = join.block
        return rows, last, None

    def _ended(
        self,
        rows: Mapping[Choice | None, _Found],
        last: int,
        inner: BlockSplitJoin | BlockDag | None,
        block: int,
        choice: Choice,
    ) -> _Found:
        found = self._extended(rows, last, inner, block, choice)
        return _Found(found.cost + self._run(block, choice), ((block, choice),), (found,))

    def _extended(
        self,
        rows: Mapping[Choice | None, _Found],
        last: int,
        inner: BlockSplitJoin | BlockDag | None,
        end: int,
        after: Choice,
    ) -> _Found:
        """Best row, extended by the element between its block and the next, and by the edges into that block."""
        least, parts = math.inf, tuple[_Found, ...]()
        for before, row in rows.items():
            between: tuple[_Found, ...] = ()
            if inner is None:
                cost = self._edge(last, before, end, after)
            elif isinstance(inner, BlockDag):
                between = (self._dag(inner, last, before, end, after),)
                cost = between[0].cost
            else:
                between = tuple([self._branch(branch, last, before, end, after) for branch in inner.branches])
                each = [branch.cost for branch in between]
                cost = min(sum(each), self._together(each))
            if row.cost + cost < least or not parts:
                least, parts = row.cost + cost, (row, *between)
        return _Found(least, parts=parts)

    def _dag(self, dag: BlockDag, last: int, before: Choice | None, end: int, after: Choice) -> _Found:
        options = [self._choices(block) for block in dag.blocks]
        fixed: dict[int, Choice | None] = {SOURCE: before, end: after}

        def cost(choices: Sequence[Choice]) -> float:
            made = fixed | dict(zip(dag.blocks, choices, strict=True))
            run = sum(self._run(block, made[block]) for block in dag.blocks)
            passed = sum(
                self._edge(last if start == SOURCE else start, made[start], stop, made[stop])
                for start, stop in dag.edges
            )
            return run + passed

        whole = math.prod(map(len, options)) <= MOST_COMBINATIONS
        tried = itertools.product(*options) if whole else self._descended(dag, last, fixed)
        best = min(tried, key=cost)
        return _Found(cost(best), tuple(zip(dag.blocks, best, strict=True)))

    def _descended(self, dag: BlockDag, last: int, fixed: Mapping[int, Choice | None]) -> Iterator[tuple[Choice, ...]]:
        """Coordinate descents from every uniform start: a block changes its choice while that lowers the cost."""
        touching: dict[int, list[tuple[int, int]]] = {block: [] for block in dag.blocks}
        for edge in dag.edges:
            for block in edge:
                if block in touching:
                    touching[block].append(edge)
        neighbours = {
            block: {end for edge in edges for end in edge} & touching.keys() - {block}
            for block, edges in touching.items()
        }

        def local(block: int, choice: Choice, made: Mapping[int, Choice | None]) -> float:
            trial = {**{end: made[end] for edge in touching[block] for end in edge}, block: choice}
            passed = (
                self._edge(last if start == SOURCE else start, trial[start], stop, trial[stop])
                for start, stop in touching[block]
            )
            return self._run(block, choice) + sum(passed)

        def improved(start: Choice) -> tuple[Choice, ...]:
            own = {block: self._choices(block) for block in dag.blocks}
            made = dict(fixed) | {block: start if start in own[block] else own[block][0] for block in dag.blocks}
            pending = set(dag.blocks)
            while pending:  # blocks with a neighbour that changed since their last update
                for block in filter(pending.__contains__, dag.blocks):
                    pending.remove(block)
                    costs = {choice: local(block, choice, made) for choice in own[block]}
                    best = min(costs, key=costs.__getitem__)
                    if costs[best] < costs[made[block]] - TOLERANCE:
                        made[block] = best
                        pending |= neighbours[block]
            return tuple(made[block] for block in dag.blocks)

        starts = dict.fromkeys(choice for block in dag.blocks for choice in self._choices(block))
        return map(improved, starts)


def _least(found: Iterable[_Found]) -> _Found:
    return min(found, key=lambda item: item.cost)


def sum_of_minima(tree: BlockPipeline, costs: Costs) -> Decision:
    """Theoretical oracle of the study: the fastest choice of each block, as if passing tensors on were free.

    The cost is the sum of the minima: a bound, not a prediction (Goldfarb 2024, section 4.3.1).
    """
    best = {block: min(costs.choices(block), key=lambda choice: costs.run(block, choice)) for block in blocks_of(tree)}
    return Decision(best, sum(costs.run(block, choice) for block, choice in best.items()))


def best_of_two_runs(tree: BlockPipeline, costs: Costs) -> Decision:
    """Practical oracle of the study: the choices of `sum_of_minima` at their full cost (section 4.3.2)."""
    best = sum_of_minima(tree, costs).choices
    return Decision(best, cost_of(tree, best, costs))


def published_program(tree: BlockPipeline, costs: Costs) -> Decision:
    """Dynamic program of the study as published (figure 4.2): over the blocks in order, without a switching cost.

    dp[i][c] = min over c' of dp[i-1][c'] + time of block i run as c; the path to the minimum is kept. The decision has
    the full cost of its choices.
    """
    rows: dict[Choice, tuple[float, tuple[tuple[int, Choice], ...]]] = {}
    for block in blocks_of(tree):
        least, path = min(rows.values(), key=lambda row: row[0], default=(0.0, ()))
        rows = {choice: (least + costs.run(block, choice), (*path, (block, choice))) for choice in costs.choices(block)}
    choices = dict(min(rows.values(), key=lambda row: row[0], default=(0.0, ()))[1])
    return Decision(choices, cost_of(tree, choices, costs))


Strategy = Callable[[BlockPipeline, Costs], Decision]
STRATEGIES: Mapping[str, Strategy] = {
    "theoretical": sum_of_minima,
    "best-of-two": best_of_two_runs,
    "published": published_program,
    "exact": decide,
}
"""Oracles by name; `exact` is the default of a plan."""
