"""Which moves a plan makes: whole sequences beside one another, and one move place by place.

What a sequence is worth is asked of callables; nothing here knows of prices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from costmodel.ir import Graph
from costmodel.moves import MOVES, rewrite

Moves = tuple[str, ...]
PLACED = "merge_siblings"
"""The move that may be made at some places and not at others."""
MOST_PLACES = 16
"""With more places than that the move is made at all of them or at none, for each one tried costs a decision."""

Made = TypeVar("Made")


def try_moves(
    graph: Graph, sequences: Sequence[Moves], decide: Callable[[Moves], Made], value: Callable[[Made], float]
) -> list[tuple[Moves, Made]]:
    """Every sequence of moves that was tried, with what was decided after it.

    Each sequence is tried as it is, and with `merge_siblings` behind it wherever it can be made. In the best of the
    latter, places are then left out one after the other, where that lowers the value: a descent, so never worse than
    all places or none, and not always the best of all subsets.

    Args:
        graph: as it was captured.
        sequences: of moves, without `merge_siblings`.
        decide: what follows from a sequence of moves.
        value: of what was decided; the smaller the better.
    """
    tried = [(moves, decide(moves)) for moves in sequences]
    places_of = {moves: _places(graph, moves) for moves in sequences}
    merged = [(moves, decide((*moves, PLACED))) for moves in sequences if places_of[moves]]
    if not merged:
        return tried
    tried += [((*moves, PLACED), made) for moves, made in merged]
    base, best = min(merged, key=lambda pair: value(pair[1]))
    kept = places_of[base]
    for place in kept if len(kept) <= MOST_PLACES else ():
        fewer = tuple(name for name in kept if name != place)
        if not fewer:
            break
        moves = (*base, f"{PLACED}:{','.join(fewer)}")
        made = decide(moves)
        tried.append((moves, made))
        if value(made) < value(best):
            best, kept = made, fewer
    return tried


def _places(graph: Graph, moves: Moves) -> tuple[str, ...]:
    return MOVES[PLACED].places(rewrite(graph, moves))
