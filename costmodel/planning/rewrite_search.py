"""Search of graph rewrites: whole sequences, then some rewrites place by place.

Callables decide on a rewritten graph and value the decision; the module does not depend on costs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from costmodel.ir import Graph
from costmodel.rewrites.registry import REWRITES

Rewrites = tuple[str, ...]
PLACED = ("merge_sibling_convs", "sink_epilogues_into_cat", "conv1x1_to_matmul", "scale_batch_norm")
"""Rewrites that may be applied at single places, in the order in which they are applied."""
MOST_PLACES = 16
"""A rewrite with more places is applied at all of them or at none, for each trial costs a decision."""
HOPELESS = 1.05
"""A rewrite is not tried place by place if, applied everywhere, it raises the value by more than this factor."""
SAME = 1e-6
"""Relative difference of two values that is rounding; the first of equal values is kept."""

Made = TypeVar("Made")


def try_rewrites(
    rewritten: Callable[[Rewrites], Graph],
    sequences: Sequence[Rewrites],
    decide: Callable[[Rewrites], Made],
    value: Callable[[Made], float],
    branch_rewrites: Sequence[str] = PLACED,
) -> list[tuple[Rewrites, Made]]:
    """Try sequences of rewrites, and return each with its decision.

    Each sequence is tried alone, and with the first of `branch_rewrites` appended at every place. In the best of them,
    each place is then switched, and stays switched if that lowers the value. The next rewrite follows in the same way.
    The result of this coordinate descent is never worse than any given sequence, and may be a local optimum.

    Args:
        rewritten: applies a sequence of rewrites to the captured graph.
        sequences: sequences of rewrites without those of `PLACED`.
        decide: makes a decision for a sequence of rewrites.
        value: value of a decision, above 0; smaller is better.
        branch_rewrites: names from `PLACED`.
    """
    tried: dict[Rewrites, Made] = {}

    def worth(rewrites: Rewrites) -> float:
        if rewrites not in tried:
            tried[rewrites] = decide(rewrites)
        return value(tried[rewrites])

    best = least(sequences, worth)
    bases = tuple(sequences)
    for name in branch_rewrites:
        for base in bases:
            if _places(rewritten, base, name):
                worth((*base, name))
        best = least(tuple(tried), worth)
        best = _descended(rewritten, best[:-1] if best[-1:] == (name,) else best, name, worth)
        bases = (best,)
    return list(tried.items())


def _descended(
    rewritten: Callable[[Rewrites], Graph], base: Rewrites, name: str, worth: Callable[[Rewrites], float]
) -> Rewrites:
    """Append a rewrite to a sequence at the places where it lowers the value."""
    places = _places(rewritten, base, name)

    def made_at(chosen: Collection[str]) -> Rewrites:
        listed = ",".join(place for place in places if place in chosen)
        return (*base, *((name,) if len(chosen) == len(places) else (f"{name}:{listed}",) if chosen else ()))

    if not places or worth(made_at(places)) > HOPELESS * worth(base):
        return base
    chosen = least((frozenset(), frozenset(places)), lambda where: worth(made_at(where)))
    for place in places if len(places) <= MOST_PLACES else ():
        chosen = least((chosen, chosen ^ {place}), lambda where: worth(made_at(where)))
    return made_at(chosen)


def least(found: Iterable[Made], value: Callable[[Made], float]) -> Made:
    """First of the items whose value is the smallest, up to rounding."""
    valued = [(one, value(one)) for one in found]
    limit = min(worth for _, worth in valued) * (1 + SAME)
    return next(one for one, worth in valued if worth <= limit)


def _places(rewritten: Callable[[Rewrites], Graph], base: Rewrites, name: str) -> tuple[str, ...]:
    return REWRITES[name].places(rewritten(base))
