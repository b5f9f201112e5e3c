"""Ledger of a sweep: one SQLite file with one transaction per case, so that a crash leaves it intact."""

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
from collectors.workloads.cases import UnitCase
from costmodel.errors import DatasetError
from costmodel.records import Count, Text, Time, convert, one_line, parse_json, require_regular

SCHEMA = 1
MOST_ATTEMPTS = 2
_TABLES = {"about", "results"}
_STARTED, _RETRY = "started", "retry"
_OPEN = f"status IN ('{_STARTED}', '{_RETRY}')"
"""Being measured, or crashed with an attempt left; any other status (ok, noisy, failed, oom, crashed, ...) is final."""

Quantiles = tuple[Time | None, ...]


class CaseRecord(msgspec.Struct, frozen=True):
    """Fields of a case's record that are checked when it is read, all optional; a record may have more.

    Attributes:
        graph: text of the graph.
        runner: `aten`, `inductor` or `autotune`.
        way: way of running the unit.
        position: relative depth in the model.
        source: model or workload.
        uses: number of calls in models.
        attempt: number of attempts.
        device_us: quantiles of device time.
        host_us: quantiles of CPU launch time.
        relative_error: error of the result against eager execution; may be NaN or infinite.
        copies: number of copies timed together.
        workspace_bytes: memory allocated beside the result.
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
    """Results of cases measured in one environment.

    Args:
        path: the file; created if it does not exist.
        environment: environment of the measuring processes; None to read a ledger of any environment.

    Raises:
        DatasetError: the file is not a ledger, is damaged, has another schema, or was begun in another environment.
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

    def dates(self) -> list[str]:
        """First and last day on which a case ended, in UTC; empty for an empty ledger."""
        with self._guarded("cannot be read"):
            query = f"SELECT date(MIN(at), 'unixepoch'), date(MAX(at), 'unixepoch') FROM results WHERE NOT {_OPEN}"  # noqa: S608
            return sorted({str(day) for day in self._db.execute(query).fetchone() if day})

    def start(self, case: UnitCase) -> None:
        """Note that a case is about to be measured alone, with the number of the attempt."""
        attempt = self._attempts(case.key, case.unit) + 1
        self._write(case.key, case.unit, _STARTED, {**asdict(case), "attempt": attempt})

    def finish(self, case: UnitCase, status: str, record: Mapping[str, Any]) -> None:
        """End a case; `record` holds its measurements, or its error."""
        self._write(case.key, case.unit, status, {**asdict(case), **record})

    def crash(self, case: UnitCase, record: Mapping[str, Any]) -> bool:
        """Note that the process of a case died; returns whether that ended the case, after its last attempt."""
        begun = any((key, unit) == (case.key, case.unit) for key, unit, _ in self._started())
        attempt = self._attempts(case.key, case.unit) + (not begun)
        return self._write_crash(case.key, case.unit, {**asdict(case), **record, "attempt": attempt})

    def end_started(self, error: str) -> None:
        """Treat cases that an earlier sweep left started as crashed: whatever killed it may have been the case."""
        for key, unit, record in self._started():
            self._write_crash(key, unit, {**record, "error": error})

    def _write_crash(self, key: str, unit: str, record: Mapping[str, Any]) -> bool:
        ended = bool(record.get("attempt", 1) >= MOST_ATTEMPTS)
        self._write(key, unit, "crashed" if ended else _RETRY, record)
        return ended

    def crashed_once(self) -> set[tuple[str, str]]:
        """(key, unit) of every case that has crashed and has an attempt left."""
        with self._guarded("cannot be read"):
            return set(self._db.execute("SELECT key, unit FROM results WHERE status = ?", (_RETRY,)))

    def forget_started(self) -> None:
        """Delete the rows of cases that were interrupted through no fault of theirs."""
        with self._guarded("cannot be written"):
            self._db.execute("DELETE FROM results WHERE status = ?", (_STARTED,))

    def _started(self) -> list[tuple[str, str, dict[str, Any]]]:
        with self._guarded("cannot be read"):
            query = "SELECT key, unit, record FROM results WHERE status = ?"
            rows = self._db.execute(query, (_STARTED,)).fetchall()
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

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every ended case: its fields, its measurements, and `status`."""
        query = f"SELECT key, unit, status, record FROM results WHERE NOT {_OPEN} ORDER BY rowid"  # noqa: S608
        with self._guarded("cannot be read"):
            for key, unit, status, record in self._db.execute(query):
                case, part, ended = convert((key, unit, status), tuple[Text, Text, Text])
                yield {"key": case, "unit": part, **_record(record), "status": ended}

    def close(self) -> None:
        """Merge the journal into the file and close it."""
        with self._guarded("cannot be written"):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()


def _record(text: object) -> dict[str, Any]:
    """Parse the record of a case and check its fields; its relative error may be NaN.

    Raises:
        ValueError: the text is not a record, or a field has another type or an impossible value.
    """
    record = convert(parse_json(convert(text, str), constants=True), dict[str, Any])
    convert(record, CaseRecord)
    return record
