"""Progress of a sweep on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collectors.sweep.settings import Progress


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Bar on standard error, if that is a terminal and `quiet` is not set; yields a function that updates it."""
    if quiet or not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from tqdm import tqdm

    with tqdm(total=0, leave=False, bar_format="{desc} |{bar}|") as bar:

        def report(progress: Progress) -> None:
            bar.total, bar.n = progress.total, progress.done
            bar.set_description_str(describe(progress))

        yield report


def describe(progress: Progress) -> str:
    """One line such as `round 2: measuring 30/90 cases, 20 units/min, 02:00 left`."""
    from tqdm import tqdm

    left = progress.seconds_left if progress.budget_left is None else progress.budget_left
    remaining = "" if left is None else f", {tqdm.format_interval(left)} left"
    number = "" if progress.round is None else f"round {progress.round}: "
    done = f"{number}{progress.phase} {progress.done}/{progress.total} cases"
    return f"{done}, {progress.units_per_minute:.0f} units/min{remaining}"
