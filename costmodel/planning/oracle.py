"""The oracle: chooses for every unit of a stream tree how it runs, so that the whole costs least.

It knows trees and numbers, and neither torch nor the predictor. What a choice costs is asked of a `Costs`: running a
unit, passing a tensor from one unit's choice to the next one's (a layout conversion, a region to enter, a fusion lost),
and what branches cost that run side by side. `STRATEGIES` holds the study's oracles beside ours.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from costmodel.planning.series_parallel import SOURCE, Leaf, Pipeline, SplitJoin, Tangle, units_of

Choice = Hashable
MOST_COMBINATIONS = 4096
"""A tangle with more combinations of choices is searched unit by unit instead of whole."""
TOLERANCE = 1e-9
"""A change that lowers the cost by less is rounding."""


class Costs(Protocol):
    """What choices cost, in any one unit of measure."""

    def choices(self, unit: int) -> Sequence[Choice]:
        """How a unit can run, at least one way."""

    def run(self, unit: int, choice: Choice) -> float:
        """Running a unit."""

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        """Passing a tensor on; the producer may be SOURCE, whose choice is None."""

    def together(self, branches: Sequence[float]) -> float:
        """Running branches of these costs side by side; at least the largest, and no smaller if one grows."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice for every unit, and what they cost together."""

    choices: Mapping[int, Choice]
    cost: float


def decide(tree: Pipeline, costs: Costs) -> Decision:
    """The cheapest decision, by dynamic programming over the tree.

    Exact where the tree has no tangle of more than MOST_COMBINATIONS; time is linear in the number of units, and
    cubic in the number of choices of a unit.
    """
    found = _Search(costs).whole(tree)
    return Decision(dict(sorted(found.choices(), key=lambda pair: pair[0])), found.cost)


def cost_of(tree: Pipeline, choices: Mapping[int, Choice], costs: Costs) -> float:
    """What a decision costs: units, tensors passed on, and branches in turn or together, whichever is less."""
    return decide(tree, _Fixed(costs, choices)).cost


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The same costs where every choice has been made."""

    costs: Costs
    made: Mapping[int, Choice]

    def choices(self, unit: int) -> Sequence[Choice]:
        return (self.made[unit],)

    def run(self, unit: int, choice: Choice) -> float:
        return self.costs.run(unit, choice)

    def edge(self, producer: int, before: Choice | None, consumer: int, after: Choice) -> float:
        return self.costs.edge(producer, before, consumer, after)

    def together(self, branches: Sequence[float]) -> float:
        return self.costs.together(branches)


@dataclass(frozen=True, slots=True)
class _Found:
    """A cost, and the decision it is of: choices of its own and those of the parts that it was built on."""

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
    """Dynamic programming: the best way to the end of an element, for every choice of the unit that ends it."""

    def __init__(self, costs: Costs) -> None:
        self._choices: Callable[[int], Sequence[Choice]] = functools.cache(costs.choices)
        self._run: Callable[[int, Choice], float] = functools.cache(costs.run)
        self._edge: Callable[[int, Choice | None, int, Choice], float] = functools.cache(costs.edge)
        self._together = costs.together
        self._known: dict[tuple[int, Choice | None, int, Choice], _Found] = {}

    def whole(self, tree: Pipeline) -> _Found:
        """The best decision for a whole tree."""
        rows, _, _ = self._rows(tree, SOURCE, None)
        return _least(rows.values())

    def _branch(self, tree: Pipeline, source: int, before: Choice | None, end: int, after: Choice) -> _Found:
        """The best decision for a branch between a unit and a join that have chosen."""
        key = (id(tree), before, end, after)
        if key not in self._known:
            rows, last, rest = self._rows(tree, source, before)
            self._known[key] = _least(self._extended(rows, last, rest, end, after))
        return self._known[key]

    def _rows(
        self, tree: Pipeline, source: int, before: Choice | None
    ) -> tuple[dict[Choice | None, _Found], int, SplitJoin | Tangle | None]:
        """The best decision by choice of the last unit, that unit, and the element behind it that has no join."""
        rows: dict[Choice | None, _Found] = {before: _Found(0.0)}
        last = source
        for element in tree.elements:
            join = element if isinstance(element, Leaf) else element.join
            if join is None:
                return rows, last, element  # type: ignore[return-value]  # no leaf: it has a join, and that is None
            inner = None if isinstance(element, Leaf) else element
            rows = {choice: self._ended(rows, last, inner, join.unit, choice) for choice in self._choices(join.unit)}
            last = join.unit
        return rows, last, None

    def _ended(
        self,
        rows: Mapping[Choice | None, _Found],
        last: int,
        inner: SplitJoin | Tangle | None,
        unit: int,
        choice: Choice,
    ) -> _Found:
        found = _least(self._extended(rows, last, inner, unit, choice))
        return _Found(found.cost + self._run(unit, choice), ((unit, choice),), (found,))

    def _extended(
        self,
        rows: Mapping[Choice | None, _Found],
        last: int,
        inner: SplitJoin | Tangle | None,
        end: int,
        after: Choice,
    ) -> Iterator[_Found]:
        """Each row, with what lies between its unit and the next one and the edges into that."""
        for before, row in rows.items():
            if inner is None:
                yield _Found(row.cost + self._edge(last, before, end, after), parts=(row,))
            elif isinstance(inner, Tangle):
                found = self._tangle(inner, last, before, end, after)
                yield _Found(row.cost + found.cost, parts=(row, found))
            else:
                branches = tuple(self._branch(branch, last, before, end, after) for branch in inner.branches)
                each = [branch.cost for branch in branches]
                yield _Found(row.cost + min(sum(each), self._together(each)), parts=(row, *branches))

    def _tangle(self, tangle: Tangle, last: int, before: Choice | None, end: int, after: Choice) -> _Found:
        options = [self._choices(unit) for unit in tangle.units]
        fixed: dict[int, Choice | None] = {SOURCE: before, end: after}

        def cost(choices: Sequence[Choice]) -> float:
            made = fixed | dict(zip(tangle.units, choices, strict=True))
            run = sum(self._run(unit, made[unit]) for unit in tangle.units)
            passed = sum(
                self._edge(last if start == SOURCE else start, made[start], stop, made[stop])
                for start, stop in tangle.edges
            )
            return run + passed

        whole = math.prod(map(len, options)) <= MOST_COMBINATIONS
        tried = itertools.product(*options) if whole else self._descended(tangle, last, fixed)
        best = min(tried, key=cost)
        return _Found(cost(best), tuple(zip(tangle.units, best, strict=True)))

    def _descended(self, tangle: Tangle, last: int, fixed: Mapping[int, Choice | None]) -> Iterator[tuple[Choice, ...]]:
        """Coordinate descents from every uniform start: units change their choices while that lowers the cost."""
        touching: dict[int, list[tuple[int, int]]] = {unit: [] for unit in tangle.units}
        for edge in tangle.edges:
            for unit in edge:
                if unit in touching:
                    touching[unit].append(edge)
        neighbours = {
            unit: {end for edge in edges for end in edge} & touching.keys() - {unit} for unit, edges in touching.items()
        }

        def local(unit: int, choice: Choice, made: Mapping[int, Choice | None]) -> float:
            trial = {**{end: made[end] for edge in touching[unit] for end in edge}, unit: choice}
            passed = (
                self._edge(last if start == SOURCE else start, trial[start], stop, trial[stop])
                for start, stop in touching[unit]
            )
            return self._run(unit, choice) + sum(passed)

        def improved(start: Choice) -> tuple[Choice, ...]:
            own = {unit: self._choices(unit) for unit in tangle.units}
            made = dict(fixed) | {unit: start if start in own[unit] else own[unit][0] for unit in tangle.units}
            pending = set(tangle.units)
            while pending:  # whose neighbours have changed since they were looked at
                for unit in filter(pending.__contains__, tangle.units):
                    pending.remove(unit)
                    costs = {choice: local(unit, choice, made) for choice in own[unit]}
                    best = min(costs, key=costs.__getitem__)
                    if costs[best] < costs[made[unit]] - TOLERANCE:
                        made[unit] = best
                        pending |= neighbours[unit]
            return tuple(made[unit] for unit in tangle.units)

        starts = dict.fromkeys(choice for unit in tangle.units for choice in self._choices(unit))
        return map(improved, starts)


def _least(found: Iterable[_Found]) -> _Found:
    return min(found, key=lambda item: item.cost)


def sum_of_minima(tree: Pipeline, costs: Costs) -> Decision:
    """The study's theoretical oracle: the fastest choice of each unit, as if passing tensors on were free.

    Its cost is the sum of the minima, a bound and no prediction (Goldfarb 2024, section 4.3.1).
    """
    best = {unit: min(costs.choices(unit), key=lambda choice: costs.run(unit, choice)) for unit in units_of(tree)}
    return Decision(best, sum(costs.run(unit, choice) for unit, choice in best.items()))


def best_of_two_runs(tree: Pipeline, costs: Costs) -> Decision:
    """The study's practical oracle: the same choices, carried out, and so at what they really cost (section 4.3.2)."""
    best = sum_of_minima(tree, costs).choices
    return Decision(best, cost_of(tree, best, costs))


def published_program(tree: Pipeline, costs: Costs) -> Decision:
    """The study's dynamic program, as published (its figure 4.2): over the units in a row, without a cost of switching.

    dp[i][c] = min over c' of dp[i-1][c'] + time of unit i run as c; the path to the smaller is kept. Carried out, it
    costs what its choices really cost.
    """
    rows: dict[Choice, tuple[float, tuple[tuple[int, Choice], ...]]] = {}
    for unit in units_of(tree):
        least, path = min(rows.values(), key=lambda row: row[0], default=(0.0, ()))
        rows = {choice: (least + costs.run(unit, choice), (*path, (unit, choice))) for choice in costs.choices(unit)}
    choices = dict(min(rows.values(), key=lambda row: row[0], default=(0.0, ()))[1])
    return Decision(choices, cost_of(tree, choices, costs))


Strategy = Callable[[Pipeline, Costs], Decision]
STRATEGIES: Mapping[str, Strategy] = {
    "theoretical": sum_of_minima,
    "best-of-two": best_of_two_runs,
    "published": published_program,
    "exact": decide,
}
"""Ways to decide, by name; `exact` is what a plan is made with unless another is asked for."""
