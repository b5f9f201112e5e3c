"""Which moves a plan makes: whole sequences beside one another, and some moves place by place.

What a sequence is worth is asked of callables; nothing here knows of prices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from costmodel.ir import Graph
from costmodel.rewrites.registry import MOVES, rewrite

Moves = tuple[str, ...]
PLACED = ("merge_siblings", "epilogues_into_cat", "pixels_as_products")
"""Moves that may be made at some places and not at others, in the order in which they are made."""
MOST_PLACES = 16
"""With more places than that a move is made at all of them or at none, for each one tried costs a decision."""
HOPELESS = 1.05
"""Nor is it tried place by place where, made at all of them, it raises the value by more than this factor."""
SAME = 1e-6
"""Values whose ratio is closer to 1 than this differ by rounding: what comes first is kept."""

Made = TypeVar("Made")


def try_moves(
    graph: Graph,
    sequences: Sequence[Moves],
    decide: Callable[[Moves], Made],
    value: Callable[[Made], float],
    branch_moves: Sequence[str] = PLACED,
) -> list[tuple[Moves, Made]]:
    """Every sequence of moves that was tried, with what was decided after it.

    Each sequence is tried as it is, and with the first of `branch_moves` behind it wherever it can be made. Then, in
    the best of all, each place is tried the other way, and kept so where that lowers the value. The next move follows
    in the same way. This is a descent: never worse than any sequence as it is, and not always the best there is.

    Args:
        graph: as it was captured.
        sequences: of moves, without those of `PLACED`.
        decide: what follows from a sequence of moves.
        value: of what was decided; the smaller the better, above 0.
        branch_moves: of `PLACED`.
    """
    tried: dict[Moves, Made] = {}

    def worth(moves: Moves) -> float:
        if moves not in tried:
            tried[moves] = decide(moves)
        return value(tried[moves])

    best = least(sequences, worth)
    bases = tuple(sequences)
    for name in branch_moves:
        for base in bases:
            if _places(graph, base, name):
                worth((*base, name))
        best = least(tuple(tried), worth)
        best = _descended(graph, best[:-1] if best[-1:] == (name,) else best, name, worth)
        bases = (best,)
    return list(tried.items())


def _descended(graph: Graph, base: Moves, name: str, worth: Callable[[Moves], float]) -> Moves:
    """A sequence and one more move at those places, one after the other, where it lowers the value."""
    places = _places(graph, base, name)

    def made_at(chosen: Collection[str]) -> Moves:
        listed = ",".join(place for place in places if place in chosen)
        return (*base, *((name,) if len(chosen) == len(places) else (f"{name}:{listed}",) if chosen else ()))

    if not places or worth(made_at(places)) > HOPELESS * worth(base):
        return base
    chosen = least((frozenset(), frozenset(places)), lambda where: worth(made_at(where)))
    for place in places if len(places) <= MOST_PLACES else ():
        chosen = least((chosen, chosen ^ {place}), lambda where: worth(made_at(where)))
    return made_at(chosen)


def least(found: Iterable[Made], value: Callable[[Made], float]) -> Made:
    """The first of those whose values are the smallest, but for rounding."""
    valued = [(one, value(one)) for one in found]
    limit = min(worth for _, worth in valued) * (1 + SAME)
    return next(one for one, worth in valued if worth <= limit)


def _places(graph: Graph, moves: Moves, name: str) -> tuple[str, ...]:
    return MOVES[name].places(rewrite(graph, moves))
