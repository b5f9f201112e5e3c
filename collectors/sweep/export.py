"""A sweep's ledger -> the dataset file that training reads and that ships with a profile."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from collectors.sweep.ledger import Ledger
from costmodel.errors import CostmodelError, DatasetError
from costmodel.training.dataset import units_frame, write_frame


def export(ledger_path: Path, out_parquet: Path) -> int:
    """Writes every ended case of a ledger as a Parquet file, with the environment in its metadata; how many there are.

    Raises:
        DatasetError: the ledger is missing, damaged or empty.
    """
    with Ledger(ledger_path) as ledger:
        rows = list(ledger.rows())
        about = {"environment": ledger.environment}
    if not rows:
        raise DatasetError(f"{ledger_path}: nothing has been measured yet; run costmodel collect")
    statuses = dict(Counter(row["status"] for row in rows))
    write_frame(units_frame(rows), out_parquet, {**about, "cases": len(rows), "statuses": statuses})
    return len(rows)


def main() -> None:
    """Exports a ledger."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("out", type=Path, help="Parquet file")
    args = parser.parse_args()
    try:
        print(f"{export(args.ledger, args.out)} cases in {args.out}")
    except CostmodelError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
