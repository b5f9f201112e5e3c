"""What torch.compile compiles again when the shape of its input changes, without compiling anything.

Dynamo makes a variant for the first shape it sees. A shape that no variant fits makes another, in which every dimension
that has changed since the first shape is dynamic; a size of 0 or 1 stays a constant, and a dynamic dimension fits sizes
from 2 (torch.compile's "automatic dynamic shapes" and "0/1 specialization"). After eight variants it runs eagerly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_VARIANTS = 8
"""`torch._dynamo.config.recompile_limit`."""
SPECIALIZED = 1
"""Sizes up to this one are constants in every variant."""

Shape = tuple[int, ...]
Variant = tuple[int | None, ...]
"""A size for every dimension; None where it is dynamic."""


@dataclass(frozen=True, slots=True)
class Recompilations:
    """What a sequence of input shapes leads to.

    Attributes:
        variants: that are compiled, in order; the first is no recompilation.
        eager: shapes that no variant fits any more, as there are too many; they run eagerly.
    """

    variants: tuple[Variant, ...]
    eager: tuple[Shape, ...] = ()


def recompilations(shapes: Sequence[Shape], most: int = MOST_VARIANTS) -> Recompilations:
    """What is compiled for input shapes that come in this order, all of one number of dimensions.

    Args:
        shapes: of the one input that changes.
        most: variants, at most.
    """
    variants: list[Variant] = []
    eager: list[Shape] = []
    for index, shape in enumerate(shapes):
        if any(_fits(variant, shape) for variant in variants):
            continue
        if len(variants) == most:
            eager.append(shape)
            continue
        seen = list(zip(*shapes[: index + 1], strict=True))
        changed = [len(set(sizes)) > 1 for sizes in seen]
        variants.append(
            tuple(None if moves and size > SPECIALIZED else size for size, moves in zip(shape, changed, strict=True))
        )
    return Recompilations(tuple(variants), tuple(eager))


def _fits(variant: Variant, shape: Shape) -> bool:
    return all(
        size > SPECIALIZED if wanted is None else size == wanted for wanted, size in zip(variant, shape, strict=True)
    )
