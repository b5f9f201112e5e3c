"""Progress of a sweep on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collectors.sweep.settings import Progress


@contextmanager
def sweep_progress(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Bar on standard error, if that is a terminal and `quiet` is not set; yields a function that updates it."""
    from costmodel.report.progress import progress_bar

    with progress_bar(quiet=quiet, has_estimate=False) as update:
        yield lambda progress: update(progress.done, progress.total, describe(progress))


def describe(progress: Progress) -> str:
    """One line such as `round 2: measuring 30/90 cases, 20 units/min, 02:00 left`."""
    from costmodel.report.figures import duration

    left = progress.seconds_left if progress.budget_left is None else progress.budget_left
    remaining = "" if left is None else f", {duration(left)} left"
    number = "" if progress.round is None else f"round {progress.round}: "
    done = f"{number}{progress.phase} {progress.done}/{progress.total} cases"
    return f"{done}, {progress.units_per_minute:.0f} units/min{remaining}"
