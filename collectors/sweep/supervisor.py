"""The supervisor of a sweep: starts a worker, watches the ledger, and replaces a worker that dies or hangs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from collectors.processes.environment import environment
from collectors.processes.process import describe_exit, kill_group, last_words, pinned, running
from collectors.sweep.ledger import Ledger
from collectors.sweep.worker import REFUSED
from costmodel.errors import DatasetError, MeasurementError

HANG_SECONDS = 90.0
"""A worker that has ended no case for so long is taken to hang."""
GRACE_SECONDS = 30.0
"""How long after the end a worker may go on with its last case."""
STARTS_WITHOUT_PROGRESS = 2
LOOK_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a phase of a sweep is: `choosing`, `compiling` or `measuring`; in which round, if there are several."""

    phase: str
    done: int
    total: int
    seconds: float
    units: int = 0
    round: int | None = None
    budget_left: float | None = None

    @property
    def units_per_minute(self) -> float:
        """Units that ended in this phase, a minute."""
        return 60 * self.units / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Until all is done, at the rate so far; None before there is one."""
        return self.seconds / self.done * (self.total - self.done) if self.done else None


Report = Callable[[Progress], None]


@contextmanager
def locked(ledger_path: Path) -> Iterator[None]:
    """Within it, no other supervisor writes to the ledger.

    Raises:
        DatasetError: another one does.
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


def supervise(
    work: Path,
    total: int,
    ledger_path: Path,
    device: str,
    end: float,
    report: Report,
    hang_seconds: float = HANG_SECONDS,
    first: subprocess.Popen[bytes] | None = None,
) -> None:
    """Runs workers one after another until `end` (monotonic seconds) or until nothing is left to do.

    Args:
        work: JSON lines of the cases to measure.
        total: how many there are.
        ledger_path: where their results go.
        device: `cpu`, `cuda` or `cuda:N`.
        end: no case is started later.
        report: told how far it is, several times a second.
        hang_seconds: a worker that ends no case for so long is killed.
        first: a worker that `waiting_worker` has started for this work.

    Raises:
        MeasurementError: workers end before they measure anything; the message has their last words.
        DatasetError: the ledger cannot be used.
    """
    log = ledger_path.with_suffix(".log")
    with Ledger(ledger_path, environment(device)) as ledger:
        ledger.settle("crashed", "the sweep was killed while it was measured")
        watch = _Watch(ledger, total, end, hang_seconds, report)
        idle = 0
        while time.monotonic() < end and idle < STARTS_WITHOUT_PROGRESS:
            before = ledger.last_row()
            start = _worker(work, ledger_path, device, end) if first is None else nullcontext(first)
            first = None
            with _interruptible(ledger), start as worker:
                status, error = watch.until_it_ends(worker)
            if status:
                ledger.settle(status, error)
            else:
                ledger.forget_started()
            if worker.returncode == 0 or (not status and not error):
                return
            if worker.returncode == REFUSED:
                raise MeasurementError(f"the worker could not go on: {last_words(log)}")
            idle = idle + 1 if ledger.last_row() == before else 0
        if idle:
            raise MeasurementError(f"workers end before they measure anything ({error}): {last_words(log)}; see {log}")


def waiting_worker(
    work: Path, ledger_path: Path, device: str, end: float
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """A worker that makes itself ready to compile and measure while others still compile; it waits for its work list.

    Args:
        work: where the list will be; nothing may lie there yet.
        ledger_path: where results will go.
        device: `cpu`, `cuda` or `cuda:N`.
        end: monotonic seconds; no case is started later.
    """
    return _worker(work, ledger_path, device, end, "--wait")


def _worker(
    work: Path, ledger_path: Path, device: str, end: float, *options: str
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    variables, name = pinned(device)
    command = [sys.executable, "-m", "collectors.sweep.worker", str(work), str(ledger_path), "--device", name, *options]
    command += ["--seconds", str(end - time.monotonic()), "--parent", str(os.getpid())]
    return running(command, variables, ledger_path.with_suffix(".log"))


@contextmanager
def _interruptible(ledger: Ledger) -> Iterator[None]:
    """An interruption is no fault of the case that it hits."""
    try:
        yield
    except KeyboardInterrupt:
        ledger.forget_started()
        raise


class _Watch:
    """Waits for workers; counts what they have ended by the rows that they add to the ledger."""

    def __init__(self, ledger: Ledger, total: int, end: float, hang_seconds: float, report: Report) -> None:
        self._ledger = ledger
        self._total = total
        self._end = end
        self._hang_seconds = hang_seconds
        self._report = report
        self._begun = time.monotonic()
        self._seen = ledger.last_row()
        self._done = 0
        self._units: set[str] = set()

    def until_it_ends(self, worker: subprocess.Popen[bytes]) -> tuple[str, str]:
        """How a case that it leaves unfinished ends, and why; two empty strings if the time was up."""
        last_sign = time.monotonic()
        while worker.poll() is None:
            if self._look():
                last_sign = time.monotonic()
            if time.monotonic() - last_sign > self._hang_seconds:
                kill_group(worker)
                return "timeout", f"ended nothing in {self._hang_seconds:g} s, and was killed"
            if time.monotonic() > self._end + GRACE_SECONDS:
                kill_group(worker)
                return "", ""
            time.sleep(LOOK_SECONDS)
        self._look()
        return "crashed", describe_exit(worker.returncode)

    def _look(self) -> bool:
        """Whether something was written since the last look."""
        rows = self._ledger.added_since(self._seen)
        if rows:
            self._seen = rows[-1][0]
        for _, key, unit, ended in rows:
            self._done += ended
            if ended:
                self._units.add(unit or key)
        seconds = time.monotonic() - self._begun
        self._report(Progress("measuring", self._done, self._total, seconds, len(self._units)))
        return bool(rows)
