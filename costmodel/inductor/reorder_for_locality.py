"""The order in which Inductor lowers a graph: every operator right before what uses it first.

`reorder_for_locality` in torch/_inductor/fx_passes/post_grad.py. So what only a sum at the end of a block reads is
lowered there, after the convolutions of other branches have had their inputs kept in memory.
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.ir import Graph


def with_locality(graph: Graph) -> Graph:
    """The graph with its operators in that order."""
    made = {op.name: op for op in graph.ops}
    users = graph.users()
    names = list(made)
    before: dict[str, str | None] = dict(zip(names, [None, *names], strict=False))
    after: dict[str, str | None] = dict(zip(names, [*names[1:], None], strict=False))
    seen: set[str] = set()
    current = names[-1] if names else None
    while current is not None:
        seen.add(current)
        for ref in made[current].refs():
            if ref.name in made and all(user.name in seen for user in users[ref.name]):
                _move(ref.name, current, before, after)
        current = before[current]
    first = next((name for name in names if before[name] is None), None)
    ordered = []
    while first is not None:
        ordered.append(made[first])
        first = after[first]
    return replace(graph, ops=tuple(ordered))


def _move(name: str, place: str, before: dict[str, str | None], after: dict[str, str | None]) -> None:
    """Takes an operator out of the chain and puts it in right before another."""
    left, right = before[name], after[name]
    if left is not None:
        after[left] = right
    if right is not None:
        before[right] = left
    left = before[place]
    if left is not None:
        after[left] = name
    before[name], after[name], before[place] = left, place, name
