"""Sweep on several GPUs of one host against a sweep on one: units a minute, and the effect of neighbours on times.

python scripts/scheduler.py --units 600 -o docs/data/scheduler_h200.json

A random sample of a profile's units is measured three times through the same scheduler: by one worker alone, by it
again (the difference without neighbours), and by all workers at once, each on a GPU of its own. The first and the last
sweep start with empty Inductor and Triton caches.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sample import quick_units, sample_units
from throughput import Results, apart, rate, report, results

from collectors.sweep.dask_cluster import LOCAL, cluster
from collectors.sweep.dask_sweep import distribute
from collectors.sweep.ledger import Ledger
from collectors.sweep.supervisor import Progress
from collectors.sweep.sweep import Settings
from collectors.workloads.cases import Case

QUANTITIES = ("device_us", "host_us")
QUICK_UNITS = 6


def run(
    cases: Sequence[Case], ledger: Path, caches: Path, workers: int | None, args: argparse.Namespace
) -> dict[str, Any]:
    """Measure the cases by a number of workers, None for one a GPU. The clock starts before the cluster."""
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"), "TRITON_CACHE_DIR": str(caches / "triton")}
    phases: dict[str, float] = {}

    def note(progress: Progress) -> None:
        phases[f"{progress.phase}_s"] = round(progress.seconds, 1)
        if progress.phase == "measuring":
            phases["measured_per_minute"] = round(progress.units_per_minute, 2)

    start = time.monotonic()
    with cluster(LOCAL, args.device, workers) as client:
        members = len(client.scheduler_info()["workers"])
        distribute(client, cases, ledger, Settings(args.device, args.seconds), note)
    return {"workers": members, **rate(cases, results(ledger), time.monotonic() - start), **phases}


def disturbance(again: Results, together: Results, alone: Results) -> dict[str, Any]:
    """Differences from the first sweep: of the repeated one, and of the one with neighbours by GPU."""
    place = next(iter(alone.values()))["place"]
    groups: dict[str, Results] = {
        "again_alone": again,
        "with_neighbours": together,
        "with_neighbours_same_gpu": {mark: row for mark, row in together.items() if row["place"] == place},
        "with_neighbours_other_gpu": {mark: row for mark, row in together.items() if row["place"] != place},
    }
    return {name: {quantity: apart(rows, alone, quantity) for quantity in QUANTITIES} for name, rows in groups.items()}


def compare(args: argparse.Namespace) -> dict[str, Any]:
    """Rates of the three sweeps, and their differences."""
    if args.quick:
        units = quick_units(QUICK_UNITS, args.device)
    else:
        units = sample_units(args.hardware, args.units, args.seed, args.device)
    cases = [case for unit in units for case in unit]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        ledgers = {way: place / f"{way}.sqlite" for way in ("alone", "again", "together")}
        ways = {
            "alone": run(cases, ledgers["alone"], place / "one", 1, args),
            "again": run(cases, ledgers["again"], place / "one", 1, args),
            "together": run(cases, ledgers["together"], place / "all", args.workers, args),
        }
        found = {way: results(path) for way, path in ledgers.items()}
        with Ledger(ledgers["together"]) as ledger:
            about = ledger.environment
    alone, together = ways["alone"], ways["together"]
    return {
        "environment": about,
        "sample": {
            "units": len(units),
            "cases": dict(Counter(case.runner for case in cases)),
            "drawn_from": "quick" if args.quick else args.hardware,
            "seed": args.seed,
        },
        **ways,
        "together_over_alone": {
            name: round(together[name] / alone[name], 2) if alone.get(name) else None
            for name in ("units_per_minute", "measured_per_minute")
        },
        "apart_from_alone": disturbance(found["again"], found["together"], found["alone"]),
    }


def main() -> None:
    """Print and write the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--workers", type=int, help="workers at once; default: one a GPU")
    parser.add_argument("--hardware", default="nvidia-h200", help="profile that the units are drawn from")
    parser.add_argument("--units", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=180, help="limit for each of the three sweeps")
    parser.add_argument("--quick", action="store_true", help="a few tiny units, for a trial run")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    report(parser, args, compare)


if __name__ == "__main__":
    main()
