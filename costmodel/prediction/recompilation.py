"""Recompilations that torch.compile makes when the shape of its input changes, without compiling anything.

Dynamo compiles a variant for the first shape. A shape that fits no variant makes another one, in which every dimension
that has changed so far is dynamic. A size of 0 or 1 stays constant, and a dynamic dimension fits sizes from 2
("automatic dynamic shapes" and "0/1 specialization"). After eight variants new shapes run eagerly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_VARIANTS = 8
"""`torch._dynamo.config.recompile_limit`."""
SPECIALIZED = 1
"""Largest size that is constant in every variant."""

Shape = tuple[int, ...]
Variant = tuple[int | None, ...]
"""Size of each dimension; None for a dynamic one."""


@dataclass(frozen=True, slots=True)
class Recompilations:
    """Outcome of a sequence of input shapes.

    Attributes:
        variants: compiled variants, in order; those after the first are recompilations.
        eager: shapes that run eagerly because the limit of variants is reached.
    """

    variants: tuple[Variant, ...]
    eager: tuple[Shape, ...] = ()


def recompilations(shapes: Sequence[Shape], most: int = MOST_VARIANTS) -> Recompilations:
    """Variants compiled for input shapes in order, all with the same number of dimensions.

    Args:
        shapes: shapes of the input that changes.
        most: largest number of variants.
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
