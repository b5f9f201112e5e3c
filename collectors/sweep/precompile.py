"""Compile cases in parallel processes, so that Inductor's cache on this machine's disk holds them.

python -m collectors.sweep.precompile cases.jsonl done.txt --device cuda --seconds 120
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from collectors.processes.process import die_with_parent, pinned
from collectors.processes.process_pool import compiling, default_processes, in_parallel
from collectors.sweep.unit_timing import warm
from collectors.workloads.cases import UnitCase, read_cases


def precompile(cases: Iterable[UnitCase], device: str, processes: int, end: float) -> Iterator[UnitCase]:
    """Compile cases; yields each when it is compiled or has failed. Cases not done at `end` are left out.

    Args:
        cases: cases that Inductor compiles.
        device: `cpu`, `cuda` or `cuda:N`.
        processes: number of processes that compile at once.
        end: monotonic seconds.
    """
    variables, name = pinned(device)
    jobs = [(case, name) for case in cases]
    for job, _ in in_parallel(warm, jobs, processes, end, compiling(device, variables)):
        yield job[0]


def main() -> None:
    """Compile the cases of a JSON-lines file, and append the key of each that is done to another file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("done", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--processes", type=int, default=default_processes())
    parser.add_argument("--parent", type=int, default=os.getppid(), help="process id; this process ends with that one")
    args = parser.parse_args()
    die_with_parent(args.parent)
    end = time.monotonic() + args.seconds
    with args.done.open("a", buffering=1) as done:
        for case in precompile(read_cases(args.cases), args.device, args.processes, end):
            done.write(case.key + "\n")


if __name__ == "__main__":
    main()
