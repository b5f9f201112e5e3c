"""Measure the units of a case file on one device.

    python -m collectors.sweep.sweep cases.jsonl ledger.sqlite --device cuda --seconds 540

The command can be interrupted at any point and repeated; cases that have ended are not measured again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from collectors.processes.process_pool import default_processes
from collectors.sweep.executor import sweep
from collectors.sweep.ledger import Ledger
from collectors.sweep.settings import HANG_SECONDS, SweepSettings
from collectors.workloads.cases import read_cases
from costmodel.errors import CostmodelError


def tally(ledger_path: Path) -> tuple[int, Counter[str]]:
    """Number of units in a ledger, and number of cases by status."""
    with Ledger(ledger_path) as ledger:
        rows = list(ledger.rows())
    return len({row["unit"] or row["key"] for row in rows}), Counter(row["status"] for row in rows)


def summary(path: Path, seconds: float) -> str:
    """Number of cases by runner and status, and the most frequent errors."""
    with Ledger(path) as ledger:
        rows = list(ledger.rows())
    ends = Counter((row.get("runner", "?"), row["status"]) for row in rows)
    lines = [f"{len(rows)} cases in the ledger, {seconds:.0f} s in this run: {dict(ends)}"]
    errors = Counter(str(row["error"])[:160] for row in rows if row.get("error"))
    return "\n".join([*lines, *(f"  {number} x {text}" for text, number in errors.most_common(12))])


def main() -> None:
    """Measure the cases of a JSON-lines file into a ledger."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=540, help="time budget")
    parser.add_argument("--compile-share", type=float, default=0.35, help="share of the budget for compiling ahead")
    parser.add_argument("--processes", type=int, default=default_processes(), help="that compile at once")
    parser.add_argument("--hang-seconds", type=float, default=HANG_SECONDS, help="deadline of a case")
    parser.add_argument("--limit", type=int, help="take so many unfinished cases at most")
    args = parser.parse_args()
    begin = time.monotonic()
    options = {key: value for key, value in vars(args).items() if key not in ("cases", "ledger")}
    try:
        sweep(list(read_cases(args.cases)), args.ledger, SweepSettings(**options), lambda _progress: None)
        print(summary(args.ledger, time.monotonic() - begin))
    except CostmodelError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
