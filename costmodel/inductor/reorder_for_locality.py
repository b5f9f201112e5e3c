"""Order in which Inductor lowers a graph: every operator right before its first user.

Follows `reorder_for_locality` in torch/_inductor/fx_passes/post_grad.py. An operator that only the sum at the end of a
block reads is lowered there, when convolutions of other branches have already realized their inputs.
"""

from __future__ import annotations

from costmodel.inductor.compilation import Compilation


def reorder_for_locality(compilation: Compilation) -> Compilation:
    """Move every operator to right before its first user."""
    made, users = compilation.producers, compilation.users
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
    return compilation.with_ops(ordered)


def _move(name: str, place: str, before: dict[str, str | None], after: dict[str, str | None]) -> None:
    """Move an operator of the linked list to right before another."""
    left, right = before[name], after[name]
    if left is not None:
        after[left] = right
    if right is not None:
        before[right] = left
    left = before[place]
    if left is not None:
        after[left] = name
    before[name], after[name], before[place] = left, place, name
