"""Settings of a sweep, and its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collectors.processes.process_pool import default_processes

HANG_SECONDS = 90.0
"""Deadline of one case."""
GRACE_SECONDS = 30.0
"""Time that work in flight gets after the end of a sweep."""


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """Settings of a sweep of units.

    Attributes:
        device: `cpu`, `cuda` or `cuda:N`.
        seconds: time budget.
        compile_share: the part of the budget that compiling in parallel may take.
        processes: number of processes that compile at once; on a Dask cluster each host takes its own default.
        hang_seconds: deadline of one case.
        limit: largest number of unfinished cases to take.
    """

    device: str
    seconds: float
    compile_share: float = 0.35
    processes: int = default_processes()
    hang_seconds: float = HANG_SECONDS
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress in a phase of a sweep (`choosing`, `compiling` or `measuring`), and the round if there are several."""

    phase: str
    done: int
    total: int
    seconds: float
    units: int = 0
    round: int | None = None
    budget_left: float | None = None

    @property
    def units_per_minute(self) -> float:
        """Units that ended in this phase, per minute."""
        return 60 * self.units / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time until all is done at the rate so far; None before there is a rate."""
        return self.seconds / self.done * (self.total - self.done) if self.done else None


Report = Callable[[Progress], None]
"""Receives progress, several times a second."""
