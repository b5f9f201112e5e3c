"""Records of whole models: one JSON line per case and process, in a file that holds one environment.

Fields of a record: those of the case; `input_shape`; `latency_us` (quantiles of each round, by mode and by `eager/MODE`
for the eager calls timed in turn with it); `MODE_host_us`, `MODE_device_us`, `MODE_warm_compile_s`, `MODE_error`;
`graph_breaks` and `compiled` (details of compilation by mode); `probe_us` and `probes_us` of the host; `disturbed` and
`unstable` modes; `session` and `process`; or `status` and `error`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.processes.environment import differences
from collectors.workloads.model_cases import WholeModelCase, case_key
from costmodel.errors import DatasetError
from costmodel.files import write_whole

Record = dict[str, Any]


def failure(case: WholeModelCase, error: BaseException | str, status: str = "error") -> Record:
    """Record of a case that was not measured; `status` is `error`, `oom`, `timeout` or how its process ended."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        status = "oom"
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return {**case, "status": status, "error": text[:600]}


@dataclass
class RecordFile:
    """A file of records; every record gets the session, and the number of the process that measured the case.

    Attributes:
        path: the file.
        counts: number of records of each case, by key.
    """

    path: Path
    counts: Counter[str]
    _session: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M"))

    def add(self, record: Record, numbered: bool = False) -> None:
        """Append a record.

        Args:
            record: the record.
            numbered: whether it names its process, as others of the same case may follow.
        """
        key = record_key(record)
        self.counts[key] += 1
        number = {"process": self.counts[key]} if numbered else {}
        append(self.path, record | {"session": self._session} | number)


def record_key(record: Mapping[str, Any]) -> str:
    """Key of a record's case, with the mode of a record of compile times."""
    return f"{case_key(dict(record))} compile {record['mode']}" if "mode" in record else case_key(dict(record))


def open_records(path: Path, environment: Mapping[str, str], retry: bool = False) -> RecordFile:
    """Open a file of records to continue it.

    Args:
        path: the file.
        environment: environment of this machine.
        retry: count no failures, so that their cases are measured again.

    Raises:
        DatasetError: the file was begun in another environment.
    """
    check_environment(path, environment)
    return RecordFile(path, count_records(path, retry))


def check_environment(path: Path, here: Mapping[str, str]) -> None:
    """Check that a file of records was begun in this environment; write the environment beside a new file.

    Raises:
        DatasetError: it was not, or its environment is unknown.
    """
    beside = path.with_suffix(".env.json")
    if not beside.exists():
        if path.exists():
            raise DatasetError(f"{path}: its environment is unknown ({beside.name} is missing); use a new file")
        write_whole(beside, json.dumps(dict(here), indent=2, sort_keys=True) + "\n")
        return
    try:
        changed = differences(json.loads(beside.read_text()), here)
    except (ValueError, TypeError, AttributeError) as error:
        raise DatasetError(f"{beside}: not an environment: {error}") from error
    if changed:
        raise DatasetError(f"{path}: begun in another environment: {changed}; use a new file")


def count_records(path: Path, retry: bool = False) -> Counter[str]:
    """Number of records of each case, by key; a torn last line is skipped, failures too if they are to be retried."""
    counts: Counter[str] = Counter()
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
            counts[record_key(record)] += not (retry and "error" in record)
        except (ValueError, KeyError, TypeError):
            continue
    return counts


def done_keys(path: Path) -> set[str]:
    """Keys of the cases in a file of records."""
    return set(count_records(path))


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Append one JSON line; a torn line left by a killed process is ended first."""
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(row).encode() + b"\n")
