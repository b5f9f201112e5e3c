"""Rates of sweeps, and differences between two sweeps of the same cases; for the benchmarks in scripts/."""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sample import by_unit

from collectors.sweep.ledger import Ledger
from collectors.workloads.cases import Case
from costmodel.errors import CostmodelError

Results = Mapping[tuple[str, str], Mapping[str, Any]]
"""Rows of a ledger by key and unit."""
MEDIAN = 2
"""Index of the median in the quantiles of a row."""


def results(ledger_path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Finished cases of a ledger.

    Raises:
        DatasetError: there is no ledger, or it is damaged.
    """
    with Ledger(ledger_path) as ledger:
        return {(row["key"], row["unit"]): row for row in ledger.rows()}


def rate(cases: Sequence[Case], found: Results, seconds: float, start_seconds: float = 0.0) -> dict[str, Any]:
    """Finished units a minute, and the number of cases by status.

    Args:
        cases: cases to measure.
        found: cases measured.
        seconds: duration of the sweep.
        start_seconds: part of that before the first case. `units_per_minute` counts it once for all units, even if the
            sweep ended before all were measured.
    """
    units = by_unit(list(cases))
    whole = [unit for unit in units if all((case.key, case.unit) in found for case in unit)]
    ends = Counter(f"{row['runner']} {row['status']}" for row in found.values())
    whole_seconds = start_seconds + (seconds - start_seconds) * len(units) / max(1, len(whole))
    return {
        "seconds": round(seconds, 1),
        "units": len(whole),
        "cases": dict(sorted(ends.items())),
        "units_per_minute": round(60 * len(units) / whole_seconds, 2) if whole else 0.0,
    }


def apart(found: Results, reference: Results, quantity: str) -> dict[str, float]:
    """Relative differences of medians from a reference, over the cases that are `ok` in both.

    Args:
        found: rows of a ledger.
        reference: rows of the reference's ledger.
        quantity: `device_us` or `host_us`.
    """
    both = [mark for mark in found if found[mark]["status"] == "ok" == reference.get(mark, {}).get("status")]
    differences = [found[mark][quantity][MEDIAN] / reference[mark][quantity][MEDIAN] - 1 for mark in both]
    if not differences:
        return {"cases": 0}
    sizes = sorted(map(abs, differences))
    return {
        "cases": len(both),
        "median_absolute": round(statistics.median(sizes), 4),
        "p90_absolute": round(sizes[int(0.9 * len(sizes))], 4),
        "median_signed": round(statistics.median(differences), 4),
    }


def report(
    parser: argparse.ArgumentParser,
    args: argparse.Namespace,
    compare: Callable[[argparse.Namespace], Mapping[str, Any]],
) -> None:
    """Print the result of a comparison as JSON, and write it to `args.output` if given."""
    try:
        text = json.dumps(compare(args), indent=1)
    except CostmodelError as error:
        parser.error(str(error))
    print(text)
    if args.output:
        args.output.write_text(text + "\n", encoding="utf-8")
