"""The ledger of a sweep: one SQLite file, one transaction a case, so that a crash leaves it whole."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from collectors.cases import Case
from collectors.environment import differences
from costmodel.errors import DatasetError

SCHEMA = 1
MOST_ATTEMPTS = 2
_TABLES = {"about", "results"}
_OPEN = "status IN ('started', 'retry')"
"""Being measured, or to be tried again as its process died; others have ended: ok, noisy, failed, oom, crashed, ..."""


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
        if environment is None and not path.is_file():
            raise DatasetError(f"{path}: there is no such ledger")
        with self._guarded("not a ledger"):
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            try:
                self._prepare(environment)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, environment: Mapping[str, str] | None) -> None:
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables - _TABLES:
            raise DatasetError(f"{self.path}: not a ledger: it has the table {min(tables - _TABLES)}")
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
        self.environment: dict[str, str] = _object(self._about("environment", begun) or "{}")
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
        except (sqlite3.Error, ValueError, TypeError) as error:
            raise DatasetError(f"{self.path}: {what}: {error}") from error

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
            return [(key, unit, _object(record)) for key, unit, record in rows]

    def _attempts(self, key: str, unit: str) -> int:
        query = f"SELECT record FROM results WHERE key = ? AND unit = ? AND {_OPEN}"  # noqa: S608 - a constant
        with self._guarded("cannot be read"):
            row = self._db.execute(query, (key, unit)).fetchone()
            return int(_object(row[0]).get("attempt", 1)) if row else 0

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
                yield {"key": key, "unit": unit, **_object(record), "status": status}

    def close(self) -> None:
        """Folds the journal into the file and closes it."""
        with self._guarded("cannot be written"):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError(f"a record is a {type(found).__name__}, not an object")
    return found
