"""The ledger of a sweep: one SQLite file, one transaction a case, so that a crash leaves it whole."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from collectors.processes.environment import differences
from collectors.workloads.cases import Case
from costmodel.errors import DatasetError
from costmodel.records import Count, Text, Time, convert, one_line, parse_json, require_regular

SCHEMA = 1
MOST_ATTEMPTS = 2
_TABLES = {"about", "results"}
_OPEN = "status IN ('started', 'retry')"
"""Being measured, or to be tried again as its process died; others have ended: ok, noisy, failed, oom, crashed, ..."""

Quantiles = tuple[Time | None, ...]


class CaseRecord(msgspec.Struct, frozen=True):
    """The fields of a case's record that others use, if it has them; a record has more.

    Attributes:
        graph: text of the graph.
        runner: how it is run.
        way: which way of running its unit this is.
        position: relative depth in its model.
        source: the model or the workload that it is of.
        uses: how often models call it.
        attempt: how often it has been tried.
        device_us: quantiles of device time.
        host_us: quantiles of the time to issue it.
        relative_error: of its result; NaN or infinite if that is.
        copies: of it that were timed together.
        workspace_bytes: allocated beside its result.
    """

    graph: str = ""
    runner: Text = ""
    way: Text | None = None
    position: Annotated[float, Meta(ge=0, le=1)] | None = None
    source: Text | None = None
    uses: Count = 1
    attempt: Count = 1
    device_us: Quantiles | None = None
    host_us: Quantiles | None = None
    relative_error: float | None = None
    copies: Count | None = None
    workspace_bytes: Time | None = None


class Ledger:
    """Results by case, for one environment.

    Args:
        path: the file; made if it is not there.
        environment: that of this machine; None to read a ledger of any environment.

    Raises:
        DatasetError: the file is no ledger, is damaged, of another schema, or was begun in another environment.
    """

    def __init__(self, path: Path, environment: Mapping[str, str] | None = None) -> None:
        self.path = path
        with self._guarded("not a ledger"):
            if path.exists():
                require_regular(path)
            elif environment is None:
                raise DatasetError(f"{path}: there is no such ledger")
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            try:
                self._prepare(environment)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, environment: Mapping[str, str] | None) -> None:
        found = {f"{kind} {name}" for kind, name in self._db.execute("SELECT type, name FROM sqlite_master") if name}
        known = {f"table {name}" for name in _TABLES} | {f"index sqlite_autoindex_{name}_1" for name in _TABLES}
        if found - known:
            raise DatasetError(f"{self.path}: not a ledger: it has the {one_line(min(found - known))}")
        (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise DatasetError(f"{self.path}: damaged: {verdict}; use a new file")
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT)")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS results (key TEXT, unit TEXT, status TEXT, at REAL, record TEXT,"
            " PRIMARY KEY (key, unit))"
        )
        schema = self._about("schema", str(SCHEMA))
        if schema != str(SCHEMA):
            raise DatasetError(f"{self.path}: a ledger of schema {schema}, not {SCHEMA}; use a new file")
        begun = None if environment is None else json.dumps(dict(environment), sort_keys=True)
        self.environment = convert(parse_json(self._about("environment", begun) or "{}"), dict[str, str])
        changed = "" if environment is None else differences(self.environment, environment)
        if changed:
            raise DatasetError(f"{self.path}: begun in another environment: {changed}; use a new file")

    def _about(self, name: str, value: str | None) -> str | None:
        if value is not None:
            self._db.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, value))
        row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return row and str(row[0])

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            said = (error.strerror if isinstance(error, OSError) else None) or one_line(str(error))
            raise DatasetError(f"{self.path}: {what}: {said}") from error

    def finished(self) -> set[tuple[str, str]]:
        """(key, unit) of every case that has ended."""
        with self._guarded("cannot be read"):
            return set(self._db.execute(f"SELECT key, unit FROM results WHERE NOT {_OPEN}"))  # noqa: S608 - a constant

    def start(self, case: Case) -> None:
        """Notes that a case is about to be measured, for the how manieth time."""
        attempt = self._attempts(case.key, case.unit) + 1
        self._write(case.key, case.unit, "started", {**asdict(case), "attempt": attempt})

    def finish(self, case: Case, status: str, record: Mapping[str, Any]) -> None:
        """Ends a case; `record` holds what was measured, or what went wrong."""
        self._write(case.key, case.unit, status, {**asdict(case), **record})

    def settle(self, status: str, error: str) -> None:
        """Ends the cases whose process is gone; a crashed one is left for a second attempt first."""
        for key, unit, record in self._started():
            again = status == "crashed" and record.get("attempt", 1) < MOST_ATTEMPTS
            self._write(key, unit, "retry" if again else status, {**record, "error": error})

    def forget_started(self) -> None:
        """Takes back the cases that were interrupted through no fault of theirs."""
        with self._guarded("cannot be written"):
            self._db.execute("DELETE FROM results WHERE status = 'started'")

    def _started(self) -> list[tuple[str, str, dict[str, Any]]]:
        with self._guarded("cannot be read"):
            rows = self._db.execute("SELECT key, unit, record FROM results WHERE status = 'started'").fetchall()
            return [(key, unit, _record(record)) for key, unit, record in rows]

    def _attempts(self, key: str, unit: str) -> int:
        query = f"SELECT record FROM results WHERE key = ? AND unit = ? AND {_OPEN}"  # noqa: S608 - a constant
        with self._guarded("cannot be read"):
            row = self._db.execute(query, (key, unit)).fetchone()
            return int(_record(row[0]).get("attempt", 1)) if row else 0

    def _write(self, key: str, unit: str, status: str, record: Mapping[str, Any]) -> None:
        row = (key, unit, status, time.time(), json.dumps(record))
        with self._guarded("cannot be written"):
            self._db.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?, ?)", row)

    def last_row(self) -> int:
        """The number of the row that was written last; every write makes a new one."""
        with self._guarded("cannot be read"):
            (last,) = self._db.execute("SELECT MAX(rowid) FROM results").fetchone()
        return last or 0

    def added_since(self, row: int) -> list[tuple[int, str, str, bool]]:
        """(number, key, unit, whether the case has ended) of the rows written after `row`; cheap, to be asked often."""
        query = f"SELECT rowid, key, unit, NOT {_OPEN} FROM results WHERE rowid > ? ORDER BY rowid"  # noqa: S608
        with self._guarded("cannot be read"):
            return [(number, key, unit, bool(ended)) for number, key, unit, ended in self._db.execute(query, (row,))]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every ended case: its fields, its measurements, and `status`."""
        query = f"SELECT key, unit, status, record FROM results WHERE NOT {_OPEN} ORDER BY rowid"  # noqa: S608
        with self._guarded("cannot be read"):
            for key, unit, status, record in self._db.execute(query):
                case, part, ended = convert((key, unit, status), tuple[Text, Text, Text])
                yield {"key": case, "unit": part, **_record(record), "status": ended}

    def close(self) -> None:
        """Folds the journal into the file and closes it."""
        with self._guarded("cannot be written"):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()


def _record(text: object) -> dict[str, Any]:
    """A case's record, its fields checked; its error may be NaN.

    Raises:
        ValueError: it is none, or a field is of another type or no possible number.
    """
    record = convert(parse_json(convert(text, str), constants=True), dict[str, Any])
    convert(record, CaseRecord)
    return record
