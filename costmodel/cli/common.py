"""What several commands do alike."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from costmodel.cli.output import note
from costmodel.report.escape import terminal


def choose_hardware(name: str | None, quiet: bool) -> str:
    """The profile's name; refused here, before a model is built, if there is no such profile."""
    from costmodel.hardware import list_profiles, load_profile, resolve_default

    if name is None:
        name, reason = resolve_default()
        note(f"hardware {name} ({reason})", quiet)
    elif name not in list_profiles():
        load_profile(name)
    return name


@contextmanager
def printing_aside() -> Iterator[None]:
    """Within it, what a model's own code prints goes to standard error: standard output is for results."""
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def busy(what: str, quiet: bool) -> Iterator[None]:
    """Says on standard error, if that is a terminal, what is being done for more than a moment."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"{terminal(what)} ...")):
        yield


def terminal_width(output: Path | None) -> int | None:
    """Columns of the terminal that a table goes to; None where it goes to a file or a pipe."""
    to_terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if to_terminal else None
