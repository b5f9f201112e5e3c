"""Plans beside the settings that an expert of torch.compile would try, measured in one process, case by case.

python scripts/measure_expert_settings.py resnet50 vit_b_16 -b 1 -b 32 -o expert/    a CSV a case, there
python scripts/measure_expert_settings.py resnet50 --setting eager --setting plan -o expert/
python scripts/measure_expert_settings.py -o expert/ --no-measure                    only the summary

A process a case builds its settings in turn for at most `--limit` seconds, on one thread, `--processes` cases side by
side; those that search among kernels have a second process, which yields to the others. When all are ready, each in its
turn measures its settings, round after round, while no other one works. The GPU's memory must hold them all. A case
with a CSV is not measured again; the environment stands beside, in environment.json.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from expert_settings import GUARDED, OURS, ROUNDS, SETTINGS, ExpertCase, measure
from expert_tables import best_of
from plan_tables import MODELS

from collectors.processes.environment import differences, environment
from collectors.processes.process import die_with_parent
from collectors.processes.process_pool import ONE_THREAD
from collectors.whole_models.case_process import READY, Job
from collectors.whole_models.held_process import HeldProcess
from costmodel.errors import own_words

PAUSE_SECONDS = 0.2
GRACE_SECONDS = 60.0
"""Beyond the limit, to import torch and to leave a step that cannot be interrupted."""
NICENESS = 10
"""Of a process that searches: its settings are seldom the fastest, and take longest to build."""
COLUMNS = ("setting", "median_ms", "low_ms", "high_ms", "compile_s", "error", "note", "rounds_ms")


def measure_block(cases: Sequence[ExpertCase], args: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Rows of each case of a block: all are built side by side, then measured one after another."""
    with tempfile.TemporaryDirectory() as directory:
        parts = [parts_of(case) for case in cases]
        logs = (Path(directory) / f"{number}.log" for number in itertools.count())
        held = [[hold(part, args, next(logs)) for part in of_case] for of_case in parts]
        try:
            for process in itertools.chain.from_iterable(held):
                while not process.settled(math.inf):
                    time.sleep(PAUSE_SECONDS)
            for case, of_case, processes in zip(cases, parts, held, strict=True):
                found: dict[str, dict[str, Any]] = {}
                for part, process in zip(of_case, processes, strict=True):
                    results = turn_of(process, len(part.settings) * ROUNDS * args.seconds * 4 + 30)
                    failed = {"note": results["error"]} if "status" in results else {}
                    found = {name: failed | results.get(name, {}) for name in part.settings} | found
                yield [{"setting": name} | found[name] for name in case.settings]
        finally:
            for process in itertools.chain.from_iterable(held):
                process.stop()


def parts_of(case: ExpertCase) -> list[ExpertCase]:
    """Settings of each process of a case: those that do not search, and those that do beside eager execution.

    Of the kernels that a search times, some may fail so that nothing else runs in the process any more.
    """
    searching = [name for name in case.settings if SETTINGS[name].searches]
    others = [name for name in case.settings if name not in searching]
    parts = [others, ["eager", *searching] if searching else []]
    return [replace(case, settings=tuple(names)) for names in parts if names]


def hold(case: ExpertCase, args: argparse.Namespace, log: Path) -> HeldProcess:
    """Start a process that builds the settings of a case and waits for its turn."""
    task = {"case": asdict(case), "seconds": args.seconds, "limit": args.limit, "parent": os.getpid()}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__, "--task", json.dumps(task)],
            env=os.environ | ONE_THREAD,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    return HeldProcess(
        Job({"model": case.model}, case.device), process, log, time.monotonic() + args.limit + GRACE_SECONDS
    )


def turn_of(process: HeldProcess, seconds: float) -> dict[str, Any]:
    """Results by setting of a process that is ready, or the record of its failure, which has a `status`."""
    if process.ready:
        process.start_turn()
        return process.finish_turn(seconds)
    return process.record or {"status": "error", "error": "not ready"}


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the file of a case, whole or not at all."""
    from costmodel.files import replacing

    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)


def read_times(path: Path) -> dict[str, float]:
    """Median latency by setting of a case's file."""
    with path.open(newline="", encoding="utf-8") as file:
        return {row["setting"]: float(row["median_ms"]) for row in csv.DictReader(file) if row["median_ms"]}


def summary(cases: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Lines of a table: the best of an expert's settings by case, and how much faster plans are; then the means.

    Args:
        cases: median latency in milliseconds by setting, by case.
    """
    lines = []
    gains: dict[str, list[float]] = {name: [] for name in OURS}
    for case, times in cases.items():
        theirs = {name: ms for name, ms in times.items() if name not in OURS}
        if not theirs:
            continue
        best = best_of(times)
        cells = []
        for name in (name for name in OURS if name in times):
            gains[name].append(theirs[best] / times[name])
            cells.append(f"{name} {times[name]:.3f} ms ({gains[name][-1]:.2f}x)")
        lines.append(f"{case:<40} {best} {theirs[best]:.3f} ms; {', '.join(cells) or 'no plan'}")
    for name, found in gains.items():
        if found:
            mean = statistics.geometric_mean(found)
            lines.append(
                f"{name}: {mean:.2f}x the best setting (geometric mean of {len(found)}), from {min(found):.2f}x"
            )
    return lines


def arguments() -> argparse.Namespace:
    """Parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("-b", "--batch-size", type=int, action="append")
    parser.add_argument("--precision", action="append")
    parser.add_argument("--img-size", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--hardware", help="profile that plans; default: the device's own")
    parser.add_argument("--setting", action="append", choices=tuple(SETTINGS))
    parser.add_argument("--seconds", type=float, default=0.1, help="to measure a setting in each of seven rounds")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds to build the settings of a case")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="random order, so that a part is a fair sample")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds in all; no block is begun later")
    parser.add_argument("--processes", type=int, default=4, help="cases that are built side by side")
    parser.add_argument("-o", "--output", type=Path, default=Path("expert"))
    parser.add_argument("--no-measure", action="store_true", help="only print the summary of the files")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    return parser.parse_args()


def cases_of(args: argparse.Namespace) -> list[ExpertCase]:
    """Every case of the command line, in the order in which they are measured."""
    found = [
        ExpertCase(model, batch, precision, args.device, args.hardware, tuple(args.setting or GUARDED), args.img_size)
        for precision in args.precision or ("float32", "float16")
        for batch in args.batch_size or (1, 32)
        for model in args.models
    ]
    if args.shuffle is not None:
        random.Random(args.shuffle).shuffle(found)  # noqa: S311 - no secret
    return found


def check_environment(directory: Path, device: str) -> None:
    """Write the environment beside the files, or refuse to add to those of another."""
    facts, here = directory / "environment.json", environment(device)
    if facts.exists() and (other := differences(json.loads(facts.read_text()), here)):
        sys.exit(f"{directory} was measured in another environment ({other}); give another directory")
    facts.write_text(json.dumps(here, indent=1) + "\n")


def run_task(task: Mapping[str, Any]) -> None:
    """Build and measure one case in this process, and print its results by setting as JSON."""
    case = ExpertCase(**task["case"] | {"settings": tuple(task["case"]["settings"])})
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # models may print
        die_with_parent(task["parent"])
        if any(SETTINGS[name].searches for name in case.settings):
            os.nice(NICENESS)

        def turn() -> None:
            print(READY, end="", file=out, flush=True)
            sys.stdin.readline()

        print(json.dumps(measure(case, task["seconds"], task["limit"], turn)), file=out)


def main() -> None:
    """Measure the cases without a file, then print the summary."""
    args = arguments()
    if args.task:
        try:
            run_task(json.loads(args.task))
        except Exception as error:  # noqa: BLE001 - whatever fails is a row of the table
            sys.exit(own_words(error))
        return
    begin = time.monotonic()
    args.output.mkdir(parents=True, exist_ok=True)
    if not args.no_measure:
        check_environment(args.output, args.device)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(args.output.resolve() / "cache"))
        missing = [case for case in cases_of(args) if not (args.output / case.file_name).exists()]
        for first in range(0, len(missing), args.processes):
            block = missing[first : first + args.processes]
            if time.monotonic() > begin + args.budget:
                break
            for case, rows in zip(block, measure_block(block, args), strict=True):
                path = args.output / case.file_name
                write_csv(path, rows)
                print(f"{time.monotonic() - begin:.0f} s: {summary({path.stem: read_times(path)})[:1]}", flush=True)
    print("\n".join(summary({path.stem: read_times(path) for path in sorted(args.output.glob("*.csv"))})))


if __name__ == "__main__":
    main()
