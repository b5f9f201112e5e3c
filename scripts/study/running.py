"""Run the points of one experiment in this process: skip what is measured, stop at the deadline, survive faults."""

from __future__ import annotations

import errno
import gc
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

import torch

from costmodel.errors import CostmodelError, own_words
from costmodel.files import write_whole
from costmodel.measurement.timers import release_memory
from study.experiment import Experiment, Point, Row, Setup, SkippedError, noted
from study.table import SKIPPED, Table

Say = Callable[[str], None]


class State(StrEnum):
    """State of an experiment after a run."""

    DONE = "done"
    PAUSED = "paused"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a run of one experiment, with the reason unless it is done."""

    state: State
    reason: str = ""


def begun_file(directory: Path, name: str) -> Path:
    """File that holds the name of the point that an experiment is measuring."""
    return directory / f".{name}.begun"


def run_points(
    experiment: Experiment, setup: Setup, table: Table, begun: Path, deadline: float, say: Say = lambda _: None
) -> Outcome:
    """Measure the points of an experiment that the table lacks.

    A point that fails is stored with its reason, and is not measured again. A full disk ends the experiment.

    Args:
        experiment: the experiment.
        setup: settings.
        table: rows so far.
        begun: file that names the point in progress, for the parent of a process that crashes.
        deadline: no point begins after it; seconds of `time.monotonic`.
        say: shows progress.
    """
    try:
        points = list(experiment.run(setup))
    except SkippedError as error:
        return Outcome(State.SKIPPED, str(error))
    wanted = [point for point in points if point.name not in table.points]
    for number, point in enumerate(wanted, len(points) - len(wanted) + 1):
        if time.monotonic() > deadline:
            return Outcome(State.PAUSED, f"the budget is spent; {len(points) - number + 1} points are left")
        say(f"{experiment.name}: point {number} of {len(points)}: {point.name}")
        try:
            write_whole(begun, point.name)
            rows = measured(point)
            table.add(point.name, rows)
            if is_broken(setup, rows):
                raise SystemExit(RESTART)
        except OSError as error:
            return Outcome(State.FAILED, f"{disk_fault(error)}; {point.name} is not stored")
        finally:
            with suppress(OSError):
                begun.unlink(missing_ok=True)
            _clear(setup)
    return Outcome(State.DONE)


def rehearse(
    experiments: Iterable[Experiment],
    setup: Setup,
    share: int,
    shares: int,
    deadline: float,
    known: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> None:
    """Run every `shares`-th point of the experiments without keeping its rows, to fill the compiler's cache on disk.

    Args:
        experiments: experiments, of which those that compile something are run.
        setup: settings.
        share: number of this process.
        shares: number of processes.
        deadline: no point begins after it; seconds of `time.monotonic`.
        known: experiment -> points that are measured already, and left out.
    """
    number = 0
    for experiment in experiments:
        if not experiment.compiles:
            continue
        try:
            points = list(experiment.run(setup))
        except CostmodelError:
            continue
        for point in points:
            if point.name in known.get(experiment.name, ()):
                continue
            number += 1
            if number % shares == share and time.monotonic() < deadline:
                with suppress(OSError):
                    measured(point)
                _clear(setup)


def measured(point: Point) -> list[Row]:
    """Rows of a point; a last one with the reason if it cannot be measured to its end."""
    rows: list[Row] = []
    try:
        rows.extend(point.measure())  # rows before an error stay
    except OSError as error:
        if error.errno in _FULL:
            raise
        rows.append(noted({}, SKIPPED + own_words(error)))
    except torch.OutOfMemoryError:
        rows.append(noted({}, f"{SKIPPED}out of memory"))
    except CostmodelError as error:
        rows.append(noted({}, f"{SKIPPED}{error}"))
    except Exception as error:  # noqa: BLE001 - compilers and libraries may raise anything; the other points go on
        rows.append(noted({}, SKIPPED + own_words(error)[:MOST_CHARACTERS]))
    return rows


MOST_CHARACTERS = 300
"""Length to which the reason of a library's error is cut."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def disk_fault(error: OSError) -> str:
    """Failed writing in words."""
    return f"cannot write {error.filename or 'the results'}: {error.strerror or os.strerror(error.errno or 0)}"


RESTART = 70
"""Exit status of a process whose device is of no more use; another one can go on."""


def is_broken(setup: Setup, rows: Iterable[Row]) -> bool:
    """Whether a fault has left this process without a usable GPU: after an illegal access, or in a failed capture."""
    if not setup.on_cuda or all(row.get("quantity") for row in rows):
        return False
    try:
        torch.rand(1, device=setup.device)
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _clear(setup: Setup) -> None:
    """Free the compiled code and the memory of a point, so that the next one starts alike."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    gc.collect()
    if setup.on_cuda:
        with suppress(RuntimeError):  # on a device that a fault has broken
            release_memory()
