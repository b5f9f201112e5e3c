"""Progress of long work on standard error, shown only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from costmodel.report.escape import terminal

Item = TypeVar("Item")

Update = Callable[[float, float | None, str], None]
"""Shows a bar's new state: amount done, total or None if unknown, description."""


def is_shown(quiet: bool = False) -> bool:
    """Whether progress is shown: standard error is a terminal, and the user has not asked for quiet."""
    return not quiet and sys.stderr is not None and sys.stderr.isatty()


def tracked(
    items: Iterable[Item], description: str, total: int | None = None, *, quiet: bool = False
) -> Iterator[Item]:
    """The items, with a progress bar while they are taken.

    Args:
        items: the work, one step an item.
        description: stands before the bar.
        total: number of items, where they have no length.
        quiet: show nothing.
    """
    total = len(items) if total is None and isinstance(items, Sized) else total
    known = "" if total is None else f"/{total}"
    with progress_bar(quiet=quiet) as update:
        update(0, total, f"{description} 0{known}")
        for done, item in enumerate(items, 1):
            yield item
            update(done, total, f"{description} {done}{known}")


@contextmanager
def progress_bar(*, quiet: bool = False, has_estimate: bool = True) -> Iterator[Update]:
    """A bar that is updated within the block and removed at its end.

    No thread redraws the bar, and the standard streams stay as they are: models' code may fork, and print.

    Args:
        quiet: show nothing.
        has_estimate: whether the time left is estimated beside the bar.
    """
    if not is_shown(quiet):
        yield lambda _done, _total, _description: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn())
    estimate = (TimeRemainingColumn(),) if has_estimate else ()
    with Progress(
        *columns,
        *estimate,
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as shown:
        task = shown.add_task("", total=None)

        def update(done: float, total: float | None, description: str) -> None:
            shown.update(task, completed=done, total=total, description=terminal(description), refresh=True)

        yield update


@contextmanager
def busy(description: str, *, quiet: bool = False) -> Iterator[None]:
    """A spinner beside `description` during work of unknown length."""
    if not is_shown(quiet):
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"{terminal(description)} ...")):
        yield
