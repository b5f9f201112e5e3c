"""Interface of a place that compiles and measures the cases of a sweep: this machine, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from collectors.sweep.settings import SweepSettings
from collectors.workloads.cases import UnitCase

CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one attempt to measure a case.

    Attributes:
        status: `ok`, `noisy`, `wrong`, `failed`, `oom`, `timeout` or `crashed`.
        record: the measurements, or the error.
        about: `environment` and `place` of the measuring process; empty if it was lost.
    """

    status: str
    record: dict[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)


class Place(Protocol):
    """A place that compiles cases in parallel and measures them one at a time on each device."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of the measuring processes."""

    def uncompiled(self, cases: Sequence[UnitCase]) -> list[UnitCase]:
        """Cases whose compiled code is not known to be in the cache."""

    def compile(self, cases: Sequence[UnitCase], end: float) -> Iterator[UnitCase]:
        """Compiles cases into the cache until `end` (monotonic seconds); yields each that is done or has failed."""

    def capacity(self) -> int:
        """Number of cases to have in flight, so that no device waits.

        Raises:
            MeasurementError: no measuring process has been available for too long.
        """

    def submit(self, case: UnitCase) -> None:
        """Queues a case for measurement."""

    def ended(self, seconds: float) -> list[tuple[UnitCase, Outcome]]:
        """Cases that ended, as soon as there are any; none after `seconds`.

        Raises:
            MeasurementError: no process can be started, or the connection to it is lost.
        """


OpenPlace = Callable[[SweepSettings, Path], AbstractContextManager[Place]]
"""Opens a place for a sweep with these settings and this ledger."""
