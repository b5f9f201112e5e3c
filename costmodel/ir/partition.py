"""Partition of a forward pass by torch.compile: compiled graphs, and operators that run eagerly between them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Partition:
    """Sections of one call of a compiled model, in order.

    Attributes:
        sections: number of the compiled graph that runs in each section; None for operators that run eagerly.
        compiled: graphs that Dynamo compiled until calls needed no further one; 0 if it gave up every frame.
        failure: error that compilation raises where eager execution succeeds; empty if there is none.
        recompiled: what made Dynamo compile again in later calls, with the lines.
        reads_kept: whether a call reads a tensor that a compiled graph of an earlier call made.
    """

    sections: tuple[int | None, ...]
    compiled: int
    failure: str = ""
    recompiled: tuple[str, ...] = ()
    reads_kept: bool = False

    @property
    def entered(self) -> int:
        """Number of compiled graphs that one call enters."""
        return sum(number is not None for number in self.sections)

    @property
    def is_whole(self) -> bool:
        """Whether the whole pass is one compiled graph."""
        return self.sections == (0,) and not self.failure
