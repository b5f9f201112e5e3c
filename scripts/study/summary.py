"""README.md of a directory of results: claim, measured result and verdict of every experiment, with its files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from markdown_tables import markdown_table

from costmodel.errors import own_words
from costmodel.files import write_whole
from study.experiment import Experiment, Verdict
from study.running import Outcome
from study.table import gaps, read

HEAD = ("experiment", "source", "claim", "measured here", "verdict", "files")
DISTURBED = 1.2
"""Load of a core above which timings count as disturbed."""


@dataclass(frozen=True, slots=True)
class Result:
    """Results of one experiment on disk.

    Attributes:
        experiment: the experiment.
        frame: its rows; None if there are none.
        verdict: the verdict; None if there are no rows.
    """

    experiment: Experiment
    frame: pd.DataFrame | None
    verdict: Verdict | None


def results_in(directory: Path, experiments: Iterable[Experiment]) -> list[Result]:
    """Results of the experiments that have a table in a directory, and empty ones of the others."""
    found = []
    for experiment in experiments:
        path = directory / f"{experiment.name}.csv"
        frame = read(path) if path.exists() else None
        found.append(Result(experiment, frame, None if frame is None else judged(experiment, frame)))
    return found


def judged(experiment: Experiment, frame: pd.DataFrame) -> Verdict:
    """Verdict on rows; one without an opinion where they do not suffice."""
    rows = frame[frame["value"].notna()]
    try:
        return experiment.judge(rows) if len(rows) else Verdict("nothing could be measured", None)
    except (KeyError, IndexError, ValueError, ZeroDivisionError) as error:
        return Verdict(f"too few rows to judge ({own_words(error)})", None)


def write_readme(
    directory: Path,
    experiments: Sequence[Experiment],
    about: Mapping[str, str],
    outcomes: Mapping[str, Outcome],
    *,
    quick: bool,
) -> None:
    """Write the README.

    Args:
        directory: directory of the results.
        experiments: all experiments, in order.
        about: environment of the measurements.
        outcomes: ends of this run, by experiment.
        quick: whether the run was a quick one.

    Raises:
        OSError: the file cannot be written.
    """
    found = results_in(directory, experiments)
    write_whole(directory / "README.md", "\n".join(_lines(found, directory, about, outcomes, quick)) + "\n")


def _lines(
    found: Sequence[Result], directory: Path, about: Mapping[str, str], outcomes: Mapping[str, Outcome], quick: bool
) -> list[str]:
    facts = ", ".join(
        f"{name} {about[name]}" for name in ("device", "host_cpu", "cores", "torch", "driver") if name in about
    )
    loads = [frame["load"].median() for result in found if (frame := result.frame) is not None and "load" in frame]
    kind = "A quick run: small cases, few repetitions." if quick else "A full run."
    lines = ["# The study, reproduced", "", f"Measured on: {facts}. {kind}", ""]
    if loads and max(loads) > DISTURBED:
        lines += [
            f"The machine was busy (up to {max(loads):.1f} runnable processes a core), so timings are disturbed.",
            "",
        ]
    rows = [_row(result, directory) for result in found if result.frame is not None]
    lines += ["Times are medians; error bars are quartiles.", "", markdown_table(HEAD, rows)]
    lines += _missing(found, outcomes)
    return lines


def _row(result: Result, directory: Path) -> list[str]:
    experiment, verdict = result.experiment, result.verdict or Verdict("", None)
    names = [f"{experiment.name}.{kind}" for kind in ("csv", "png", "svg")]
    files = ", ".join(f"[{name.rpartition('.')[2]}]({name})" for name in names if (directory / name).exists())
    cells = [experiment.name, experiment.source, experiment.claim, verdict.measured, verdict.word, files]
    return [cell.replace("|", "\\|").replace("\n", " ") for cell in cells]


SHOWN = 3
"""Points that are named for one reason; more are counted."""


def _named(points: Sequence[str]) -> str:
    more = f" and {len(points) - SHOWN} more" if len(points) > SHOWN else ""
    return f"{', '.join(points[:SHOWN])}{more}"


def _missing(found: Sequence[Result], outcomes: Mapping[str, Outcome]) -> list[str]:
    """Experiments and points that were not measured, with reasons."""
    lines = []
    for result in found:
        name = result.experiment.name
        outcome = outcomes.get(name)
        if outcome is not None and outcome.reason:
            lines.append(f"- {name}: {outcome.state}: {outcome.reason}")
        elif result.frame is None:
            lines.append(f"- {name}: not run yet")
        if result.frame is not None:
            lines += [f"- {name}, {_named(points)}: {reason}" for reason, points in gaps(result.frame).items()]
    return ["", "## Not measured", "", *lines] if lines else []
