"""Export a sweep's ledger as the dataset that training reads and that ships with a profile."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from collectors.sweep.ledger import Ledger
from costmodel.errors import DatasetError
from costmodel.training.dataset import units_frame, write_frame


def export(ledger_path: Path, out_parquet: Path) -> int:
    """Write every ended case of a ledger to a Parquet file, with the environment in its metadata; returns their number.

    Raises:
        DatasetError: the ledger is missing, damaged or empty.
    """
    with Ledger(ledger_path) as ledger:
        rows = list(ledger.rows())
        about = {"environment": ledger.environment, "dates": ledger.dates()}
    if not rows:
        raise DatasetError(f"{ledger_path}: nothing has been measured yet; run costmodel collect")
    statuses = dict(Counter(row["status"] for row in rows))
    write_frame(units_frame(rows), out_parquet, {**about, "cases": len(rows), "statuses": statuses})
    return len(rows)
