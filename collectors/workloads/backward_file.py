"""File of the cases of the workload `backward`, written apart from a sweep, as on another machine.

python -m collectors.workloads.backward_file cases.jsonl --cases 4000
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from collectors.workloads.backward import CASES, StepSpec, harvested, sample, specs
from collectors.workloads.cases import write_cases
from collectors.workloads.catalog import QUICK_CASES, QUICK_MODELS, TORCHVISION, training_models


def main() -> None:
    """Write a sample to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="file to write, JSON lines")
    parser.add_argument("--cases", type=int, default=CASES, dest="count", help="number of cases")
    parser.add_argument("--seconds", type=float, default=1500, help="time budget of capturing")
    parser.add_argument("--processes", type=int, help="that capture at once")
    parser.add_argument("--quick", action="store_true", help="few and tiny cases")
    args = parser.parse_args()
    wanted = (
        [StepSpec(QUICK_MODELS[0], 1, None, True, "adamw", 64)] if args.quick else specs(training_models(), TORCHVISION)
    )
    found = list(harvested(wanted, time.monotonic() + args.seconds, args.processes))
    write_cases(args.cases, sample(found, 4 * QUICK_CASES if args.quick else args.count))


if __name__ == "__main__":
    main()
