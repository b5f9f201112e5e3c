"""Rates of streams: items that a stream pops, peeks and pushes in each run.

Equations 2.1 to 2.5 of Dighe (2024), with least common multiples instead of products, so that a stream runs no more
often than necessary, and with two corrections. A channel is balanced by the items that its reader pops; the thesis
uses those that it peeks at, so that a filter with a window would leave items behind in each run. Equation 2.5 lacks the
division by the first branch's weight that the preceding text derives.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from costmodel.errors import GraphError
from costmodel.streamit.types import Filter, FilterPipeline, Separator, Stream


@dataclass(frozen=True, slots=True)
class Rates:
    """Items that a stream pops, peeks and pushes in each run of its steady state."""

    pop: int
    peek: int
    push: int


def rates(stream: Stream) -> Rates:
    """Compute the rates of a stream in its shortest steady state.

    Raises:
        GraphError: there is no steady state; on some channel items would accumulate or run out.
    """
    if isinstance(stream, Filter | Separator):
        return Rates(stream.pop, stream.peek, stream.push)
    if isinstance(stream, FilterPipeline):
        return pipeline_rates([rates(child) for child in stream.children])
    return split_join_rates([rates(branch) for branch in stream.branches], stream.splitter, stream.joiner)


def pipeline_rates(children: Sequence[Rates]) -> Rates:
    """Equations 2.1 to 2.3: each child runs until the channel before it is empty."""
    times = Fraction(1)
    runs = [times]
    for before, after in itertools.pairwise(children):
        times *= _quotient(before.push, after.pop)
        runs.append(times)
    whole = _whole(runs)
    pop = whole[0] * children[0].pop
    return Rates(pop, pop + children[0].peek - children[0].pop, whole[-1] * children[-1].push)


def split_join_rates(branches: Sequence[Rates], splitter: Sequence[int], joiner: Sequence[int]) -> Rates:
    """Equations 2.4 and 2.5, and their equivalent for a round-robin splitter.

    The splitter runs until every branch can pop all its items, and the joiner until it has popped all their results.
    """
    given = splitter or [1] * len(branches)
    runs = [_quotient(weight, branch.pop) for weight, branch in zip(given, branches, strict=True)]
    rounds = [_quotient(run * branch.push, weight) for run, branch, weight in zip(runs, branches, joiner, strict=True)]
    if len(set(rounds)) > 1:
        raise GraphError(
            f"no steady state: the joiner's weights {tuple(joiner)} do not match the items that the branches push"
        )
    sweeps, *_, joins = _whole([Fraction(1), *runs, rounds[0]])
    taken = sum(splitter) if splitter else 1
    windows = ((branch.peek - branch.pop, weight) for branch, weight in zip(branches, given, strict=True))
    ahead = max(math.ceil(Fraction(items, weight)) if items else 0 for items, weight in windows)
    return Rates(sweeps * taken, (sweeps + ahead) * taken, joins * sum(joiner))


def _quotient(made: Fraction | int, taken: int) -> Fraction:
    """Runs of a reader for one run of its writer."""
    if (made == 0) != (taken == 0):
        raise GraphError(f"no steady state: {made} items are pushed for a reader that pops {taken}")
    return Fraction(made, taken) if taken else Fraction(1)


def _whole(fractions: Sequence[Fraction]) -> list[int]:
    """Smallest whole numbers in the same proportions."""
    scale = math.lcm(*(fraction.denominator for fraction in fractions))
    whole = [int(fraction * scale) for fraction in fractions]
    shared = math.gcd(*whole)
    return [number // shared for number in whole]
