"""Directory of results: which environment measured them, and how each experiment ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from collectors.processes.environment import differences
from costmodel.errors import RequestError
from costmodel.files import write_whole
from study.running import Outcome, State

NAME = "study.json"


@dataclass(frozen=True, slots=True)
class Record:
    """Contents of `study.json`.

    Attributes:
        environment: versions, device and host.
        quick: whether the runs are quick ones.
        outcomes: end of the last run of each experiment.
    """

    environment: Mapping[str, str]
    quick: bool
    outcomes: Mapping[str, Outcome]

    def having(self, name: str, outcome: Outcome) -> Record:
        """Record with the end of one more experiment."""
        return replace(self, outcomes={**self.outcomes, name: outcome})

    def write(self, directory: Path) -> None:
        """Write the record.

        Raises:
            OSError: the file cannot be written.
        """
        write_whole(directory / NAME, json.dumps(asdict(self), indent=1) + "\n")


def read_record(directory: Path) -> Record | None:
    """Record of a directory; None if it has none.

    Raises:
        RequestError: the file is damaged.
    """
    path = directory / NAME
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        outcomes = {name: Outcome(State(each["state"]), each["reason"]) for name, each in found["outcomes"].items()}
        return Record(found["environment"], found["quick"], outcomes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RequestError(f"{path} is damaged; remove it, or give another directory") from None


def open_record(directory: Path, environment: Mapping[str, str], *, quick: bool, any_machine: bool = False) -> Record:
    """Record of a directory to add results to, or a new one.

    Args:
        directory: directory of results.
        environment: environment of the results to add.
        quick: whether they are of a quick run.
        any_machine: whether they do not depend on the environment.

    Raises:
        RequestError: the directory holds results of another environment or kind of run, or the file is damaged.
    """
    record = read_record(directory)
    if record is None:
        return Record(environment, quick, {})
    if record.quick != quick:
        kind = "quick" if record.quick else "full"
        raise RequestError(f"{directory} holds results of a {kind} run; give another directory")
    if not any_machine and (different := differences(record.environment, environment)):
        raise RequestError(f"{directory} holds results of another environment: {different}; give another directory")
    return record
