"""The sweep: compiles in parallel, measures in one process alone, survives what a case does to its process.

    python -m collectors.sweep.sweep cases.jsonl ledger.sqlite --device cuda --seconds 540

may be interrupted at any point and given again: what has ended is not measured again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from collectors.processes.environment import environment
from collectors.processes.process_pool import default_processes
from collectors.sweep.ledger import Ledger
from collectors.sweep.precompile import precompile
from collectors.sweep.supervisor import HANG_SECONDS, Progress, Report, locked, supervise, waiting_worker
from collectors.workloads.cases import Case, read_cases, write_cases, write_whole
from costmodel.errors import CostmodelError


@dataclass(frozen=True, slots=True)
class Settings:
    """How a sweep is run.

    Attributes:
        device: `cpu`, `cuda` or `cuda:N`.
        seconds: how long it may take.
        compile_share: which part of that may go into compiling in parallel.
        processes: how many compile at once.
        hang_seconds: a worker that ends no case for so long is killed.
        limit: how many unfinished cases are taken at most.
    """

    device: str
    seconds: float
    compile_share: float = 0.35
    processes: int = default_processes()
    hang_seconds: float = HANG_SECONDS
    limit: int | None = None


def sweep(cases: Sequence[Case], ledger_path: Path, settings: Settings, report: Report) -> None:
    """Measures the cases that the ledger does not hold, until all are done or the time is up.

    Raises:
        DatasetError: the ledger is damaged, in use, or of another environment.
        MeasurementError: no worker can be brought to measure.
    """
    begin = time.monotonic()
    with locked(ledger_path):
        with Ledger(ledger_path, environment(settings.device)) as ledger:
            finished = ledger.finished()
        todo = [case for case in cases if (case.key, case.unit) not in finished][: settings.limit]
        record = ledger_path.with_suffix(".compiled")
        known = set(record.read_text().split()) if record.exists() else set()
        cold = [case for case in todo if case.compiled and case.key not in known]
        work = ledger_path.with_suffix(".work.jsonl")
        work.unlink(missing_ok=True)
        end = begin + settings.seconds
        waiting = waiting_worker(work, ledger_path, settings.device, end) if cold else nullcontext()
        with waiting as first:
            known |= _compile(cold, known, record, settings, begin, report)
            ready = [case for case in todo if not case.compiled or case.key in known]
            write_cases(work, ready)
            if ready:
                hang_seconds = settings.hang_seconds
                supervise(work, len(ready), ledger_path, settings.device, end, report, hang_seconds, first)
        work.unlink(missing_ok=True)


def _compile(
    cold: Sequence[Case], known: Collection[str], record: Path, settings: Settings, begin: float, report: Report
) -> set[str]:
    """Fills Inductor's cache in parallel; keys of the cases that were compiled now, those that failed included.

    A case that failed is measured all the same: the worker, alone and supervised, finds out and records why.

    Args:
        cold: what is to be compiled.
        known: keys of all that was, before.
        record: the file that keeps them.
        settings: of the sweep.
        begin: monotonic seconds; when the sweep did.
        report: told how far it is.
    """
    made: set[str] = set()
    start = time.monotonic()
    end = begin + settings.seconds * settings.compile_share
    try:
        for count, case in enumerate(precompile(cold, settings.device, settings.processes, end), 1):
            made.add(case.key)
            report(Progress("compiling", count, len(cold), time.monotonic() - start, count))
    finally:
        write_whole(record, "\n".join(sorted({*known, *made})))
    return made


def tally(ledger_path: Path) -> tuple[int, Counter[str]]:
    """How many units a ledger holds, and how many of their cases ended how."""
    with Ledger(ledger_path) as ledger:
        rows = list(ledger.rows())
    return len({row["unit"] or row["key"] for row in rows}), Counter(row["status"] for row in rows)


def summary(path: Path, seconds: float) -> str:
    """How many cases ended how, and what went wrong most often."""
    with Ledger(path) as ledger:
        rows = list(ledger.rows())
    ends = Counter((row.get("runner", "?"), row["status"]) for row in rows)
    lines = [f"{len(rows)} cases in the ledger, {seconds:.0f} s in this run: {dict(ends)}"]
    errors = Counter(str(row["error"])[:160] for row in rows if row.get("error"))
    return "\n".join([*lines, *(f"  {number} x {text}" for text, number in errors.most_common(12))])


def main() -> None:
    """Measures the cases of a JSON-lines file into a ledger."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--compile-share", type=float, default=0.35)
    parser.add_argument("--processes", type=int, default=default_processes())
    parser.add_argument("--hang-seconds", type=float, default=HANG_SECONDS)
    parser.add_argument("--limit", type=int, help="take so many unfinished cases at most")
    args = parser.parse_args()
    begin = time.monotonic()
    options = {key: value for key, value in vars(args).items() if key not in ("cases", "ledger")}
    try:
        sweep(list(read_cases(args.cases)), args.ledger, Settings(**options), _quietly)
        print(summary(args.ledger, time.monotonic() - begin))
    except CostmodelError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _quietly(_progress: Progress) -> None:
    """Nobody looks."""


if __name__ == "__main__":
    main()
