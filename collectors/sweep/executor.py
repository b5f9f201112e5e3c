"""Execute a sweep: compile ahead, hand cases to measuring processes, retry a crash once, write every end to the ledger.

The same executor serves one device of this machine and a Dask cluster; the difference is a `Place`. Only this process
writes to the ledger.
"""

from __future__ import annotations

import fcntl
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from collectors.processes.environment import differences
from collectors.sweep.ledger import Ledger
from collectors.sweep.local_place import LocalPlace
from collectors.sweep.place import CRASHED, OpenPlace, Outcome, Place
from collectors.sweep.settings import GRACE_SECONDS, Progress, Report, SweepSettings
from collectors.workloads.cases import UnitCase, distinct
from costmodel.errors import DatasetError

LOOK_SECONDS = 0.5


def sweep(
    cases: Sequence[UnitCase],
    ledger_path: Path,
    settings: SweepSettings,
    report: Report,
    open_place: OpenPlace = LocalPlace,
) -> None:
    """Measure the cases that the ledger does not hold, until all are done or the time is up.

    Args:
        cases: units to measure.
        ledger_path: file of the results.
        settings: device, time budget and deadlines.
        report: receives progress.
        open_place: opens the place that compiles and measures.

    Raises:
        RequestError: two Dask workers share one GPU.
        DatasetError: the ledger is damaged, in use, or of another environment; or workers differ in environment.
        MeasurementError: no process can be started to measure, or all workers are gone.
    """
    begin = time.monotonic()
    with (
        locked(ledger_path),
        open_place(settings, ledger_path) as place,
        Ledger(ledger_path, place.environment) as ledger,
    ):
        ledger.end_started("the sweep was killed while it was measured")
        finished = ledger.finished()
        todo = [case for case in distinct(cases) if (case.key, case.unit) not in finished][: settings.limit]
        ready = _compile(todo, place, settings, begin, report)
        _Measuring(place, ledger, len(ready), begin + settings.seconds, report).run(ready)


@contextmanager
def locked(ledger_path: Path) -> Iterator[None]:
    """Exclusive use of a ledger among sweeps.

    Raises:
        DatasetError: another sweep is using it, or it cannot be written.
    """
    try:
        file = ledger_path.with_suffix(".lock").open("w")
    except OSError as error:
        raise DatasetError(f"{ledger_path}: cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DatasetError(f"{ledger_path}: another sweep is writing to it; wait for its end") from None
        yield


def _compile(
    todo: Sequence[UnitCase], place: Place, settings: SweepSettings, begin: float, report: Report
) -> list[UnitCase]:
    """Compile in parallel within a share of the budget; returns the cases that are ready to be measured.

    A case that fails to compile is ready as well: it fails again where it is measured, and the reason is recorded.
    """
    cold = place.uncompiled(todo)
    missing = {case.key for case in cold}
    start = time.monotonic()
    for count, case in enumerate(place.compile(cold, begin + settings.seconds * settings.compile_share), 1):
        missing.discard(case.key)
        report(Progress("compiling", count, len(cold), time.monotonic() - start, count))
    return [case for case in todo if case.key not in missing]


@dataclass
class _Measuring:
    """Loop that keeps measuring processes busy and writes down each outcome.

    A case that crashed, or whose worker was lost, is retried alone after all others; a second crash is recorded.
    """

    place: Place
    ledger: Ledger
    total: int
    end: float
    report: Report
    done: int = 0
    in_flight: int = 0
    units: set[str] = field(default_factory=set)
    waiting: deque[UnitCase] = field(default_factory=deque)
    retries: deque[UnitCase] = field(default_factory=deque)

    def run(self, cases: Sequence[UnitCase]) -> None:
        """Measure all cases, or as many as the time allows."""
        begin = time.monotonic()
        crashed = self.ledger.crashed_once()
        for case in cases:
            (self.retries if (case.key, case.unit) in crashed else self.waiting).append(case)
        try:
            while self.waiting or self.retries or self.in_flight:
                now = time.monotonic()
                if now > self.end:
                    self.waiting.clear()
                    self.retries.clear()
                if now > self.end + GRACE_SECONDS:
                    return
                self._fill()
                for case, outcome in self.place.ended(LOOK_SECONDS):
                    self.in_flight -= 1
                    self.note(case, outcome)
                seconds = time.monotonic() - begin
                self.report(Progress("measuring", self.done, self.total, seconds, len(self.units)))
        finally:
            self.ledger.forget_started()  # an interruption is no fault of the case that it hits

    def _fill(self) -> None:
        """Keep every device busy; a retried case runs while no other does."""
        capacity = self.place.capacity()
        while self.waiting and self.in_flight < capacity:
            self._submit(self.waiting.popleft(), alone=capacity == 1)
        if capacity and self.retries and not self.in_flight:
            self._submit(self.retries.popleft(), alone=True)

    def _submit(self, case: UnitCase, alone: bool) -> None:
        """Submit a case. One that runs alone is noted as started: if the sweep is killed now, the case may be why."""
        if alone:
            self.ledger.start(case)
        self.place.submit(case)
        self.in_flight += 1

    def note(self, case: UnitCase, outcome: Outcome) -> None:
        """Write an outcome down, or keep the case for its second attempt.

        Raises:
            DatasetError: the process that measured it has another environment than the ledger.
        """
        about = outcome.about
        if about and (changed := differences(self.ledger.environment, about["environment"])):
            raise DatasetError(f"a worker of another environment has joined ({about['place']}): {changed}")
        record = {**outcome.record, "place": about.get("place")}
        if outcome.status != CRASHED:
            self.ledger.finish(case, outcome.status, record)
        elif not self.ledger.crash(case, record):
            self.retries.append(case)
            return
        self.done += 1
        self.units.add(case.unit or case.key)
