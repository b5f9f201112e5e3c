"""Rerun experiments of five papers on this machine: tables, figures, and whether each conclusion holds here.

python scripts/reproduce_study.py --list
python scripts/reproduce_study.py --device cuda --fill-cache 8 --budget 8m  compile beside each other, measure nothing
python scripts/reproduce_study.py --device cuda -o results --budget 8m      again and again, until all are done
python scripts/reproduce_study.py matmul end-to-end --device cpu -o results --quick

Writes for each experiment a tidy CSV and a figure (PNG, SVG), and README.md with the paper's claim, the measured result
and the verdict. What is in the directory is not measured again; remove a table to repeat its experiment. Each
experiment runs in a process of its own. Exit status: 0 done, or the budget is spent; 1 an experiment failed; 2 the
request was wrong; 130 interrupted. On a machine with several GPUs, experiments can run beside each other into one
directory:

    CUDA_VISIBLE_DEVICES=0 python scripts/reproduce_study.py matmul -o results & \
    CUDA_VISIBLE_DEVICES=1 python scripts/reproduce_study.py end-to-end -o results
"""

from __future__ import annotations

import argparse
import faulthandler
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from markdown_tables import markdown_table
from study.catalog import EXPERIMENTS
from study.directory import Record, open_record, read_record
from study.experiment import Experiment, Setup, noted
from study.running import RESTART, Outcome, State, begun_file, disk_fault, rehearse, run_points
from study.summary import results_in, write_readme
from study.table import SKIPPED, Table

from collectors.processes.environment import environment
from collectors.processes.process import describe_exit, die_with_parent, kill_group
from costmodel.cli.collect_checks import check_device, parse_duration
from costmodel.errors import CostmodelError, DatasetError, RequestError, own_words
from costmodel.execution.inductor_compile import share_cache
from costmodel.measurement.cpu_determinism import make_cpu_deterministic

HANG_SECONDS = {"cuda": 400.0, "cpu": 3600.0}
"""Time after which a point counts as hanging, and its process is killed: a CPU may compile a model for minutes."""
GRACE_SECONDS = 20.0
"""Time that a process has to end its point after the budget is spent."""
CRASHES = 5
"""Most processes that one experiment may lose."""
IN_ROWS = ("device", "torch")
"""Facts of the environment in each row; all are in study.json."""
DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="all of them by default")
    parser.add_argument("--device", default=None, help="cpu, cuda or cuda:N (default: the GPU if there is one)")
    parser.add_argument("-o", "--output", type=Path, default=Path("study"), metavar="DIR", help="default: study")
    parser.add_argument("--quick", action="store_true", help="small cases, few repetitions")
    parser.add_argument("--budget", default="", metavar="TIME", help="stop between points after so long: 90s, 9m, 1h")
    parser.add_argument("--list", action="store_true", help="list the experiments, and measure nothing")
    parser.add_argument("--only-readme", action="store_true", help="write figures and README.md anew from the tables")
    parser.add_argument(
        "--fill-cache",
        type=int,
        default=0,
        metavar="N",
        help="first compile everything in N processes, and measure nothing",
    )
    parser.add_argument("--share", default="", help=argparse.SUPPRESS)
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def chosen(names: Sequence[str]) -> list[Experiment]:
    """Experiments by name, in the order of the catalog; all of them for no names.

    Raises:
        RequestError: unknown name.
    """
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    if unknown := [name for name in names if name not in known]:
        raise RequestError(f"unknown experiment {unknown[0]!r}; there are {', '.join(known)}")
    return [experiment for experiment in EXPERIMENTS if not names or experiment.name in names]


def say(text: str) -> None:
    """Show progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def run_one(experiment: Experiment, args: argparse.Namespace, device: str, deadline: float) -> Outcome:
    """Run one experiment, in a process of its own unless this is that process."""
    if args.in_process:
        make_cpu_deterministic(device)
        share_cache()
        return run_here(experiment, Setup(device, args.quick, args.output), args.output, deadline)
    return run_apart(experiment, args, device, deadline)


def run_here(experiment: Experiment, setup: Setup, directory: Path, deadline: float) -> Outcome:
    """Run one experiment in this process, and draw its figure."""
    about = environment(setup.device)
    try:
        table = Table(directory / f"{experiment.name}.csv", {key: about[key] for key in IN_ROWS})
    except DatasetError as error:
        return Outcome(State.FAILED, str(error))
    outcome = run_points(experiment, setup, table, begun_file(directory, experiment.name), deadline, say)
    return draw(experiment, directory) if outcome.state is State.DONE else outcome


def fill_cache(args: argparse.Namespace, experiments: Sequence[Experiment], device: str, deadline: float) -> None:
    """Run all points in processes beside each other, so that later runs find their compiled kernels on disk."""
    left = deadline - time.monotonic()
    options = ["--device", device, "-o", str(args.output), *(["--quick"] if args.quick else [])]
    options += ["--budget", f"{max(left, 1.0):.1f}s"] if math.isfinite(left) else []
    names = [experiment.name for experiment in experiments]
    commands = [
        [sys.executable, str(Path(__file__).resolve()), *names, *options, "--share", f"{share}/{args.fill_cache}"]
        for share in range(args.fill_cache)
    ]
    processes = [_started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands]
    try:
        for number, process in enumerate(processes, 1):
            with suppress(subprocess.TimeoutExpired):
                process.wait(None if math.isinf(left) else max(1.0, deadline - time.monotonic() + GRACE_SECONDS))
            say(f"filling the cache: {number} of {len(processes)} processes are done")
    finally:
        for process in processes:
            kill_group(process)


def rehearse_share(args: argparse.Namespace, experiments: Sequence[Experiment], device: str, deadline: float) -> None:
    """Run one share of the points, written `2/8`, in this process."""
    share, shares = map(int, args.share.split("/"))
    make_cpu_deterministic(device)
    share_cache()
    with tempfile.TemporaryDirectory() as directory:
        setup = Setup(device, args.quick, Path(directory), rehearses=True)
        rehearse(experiments, setup, share, shares, deadline, measured_points(args.output, experiments))


def measured_points(directory: Path, experiments: Sequence[Experiment]) -> dict[str, frozenset[str]]:
    """Points in the tables of a directory, by experiment; a damaged table is left to the run that measures."""
    found = {}
    for experiment in experiments:
        with suppress(DatasetError):
            found[experiment.name] = Table(directory / f"{experiment.name}.csv", {}).points
    return found


def draw(experiment: Experiment, directory: Path) -> Outcome:
    """Draw the figure of an experiment from its table."""
    (result,) = results_in(directory, [experiment])
    if result.frame is None or not len(rows := result.frame[result.frame["value"].notna()]):
        return Outcome(State.DONE)
    try:
        from study.plots import save

        save(experiment.figure(rows), directory, experiment.name)
    except (KeyError, IndexError, ValueError) as error:
        return Outcome(State.DONE, f"no figure, for too little was measured: {own_words(error)}")
    except ImportError:
        return Outcome(State.DONE, "no figure: pip install 'costmodel[plot]'")
    except OSError as error:
        return Outcome(State.FAILED, disk_fault(error))
    return Outcome(State.DONE)


def run_apart(experiment: Experiment, args: argparse.Namespace, device: str, deadline: float) -> Outcome:
    """Run one experiment in a process of its own; a point that crashes or hangs is stored as such, and left out."""
    begun = begun_file(args.output, experiment.name)
    for _ in range(CRASHES):
        left = deadline - time.monotonic()
        if left <= 0:
            return Outcome(State.PAUSED, "the budget is spent")
        budget = ["--budget", f"{left:.1f}s"] if math.isfinite(left) else []
        quick = ["--quick"] if args.quick else []
        own = [experiment.name, "--device", device, "-o", str(args.output), *quick, *budget, "--in-process"]
        longest_s = HANG_SECONDS[device.partition(":")[0]]
        end = _waited([sys.executable, str(Path(__file__).resolve()), *own], begun, longest_s)
        if end in _ENDS:
            record = opened(args, [experiment], device)
            return record.outcomes.get(experiment.name, Outcome(State.FAILED, "its end could not be recorded"))
        if end == RESTART:
            continue
        fault = "took too long" if end is None else describe_exit(end)
        try:
            point = begun.read_text(encoding="utf-8")
            begun.unlink()
        except OSError:
            return Outcome(State.FAILED, f"the process ended: {fault}")
        say(f"{experiment.name}: {point}: {fault}")
        about = environment(device)
        table = Table(args.output / f"{experiment.name}.csv", {key: about[key] for key in IN_ROWS})
        table.add(point, [noted({}, f"{SKIPPED}the process ended: {fault}")])
    return Outcome(State.FAILED, f"{CRASHES} processes ended early")


_ENDS = (DONE, FAILED)
"""Exit statuses of a process that has recorded how its experiment ended."""


def _started(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Process in a session of its own, that ends when this one does, however it ends."""
    parent = os.getpid()
    return subprocess.Popen(
        command,
        start_new_session=True,
        preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509 - no threads run here
        **options,
    )


def _waited(command: Sequence[str], begun: Path, longest_s: float) -> int | None:
    """Exit status of a process; None if it was killed because one point took longer than `longest_s`."""
    process = _started(command)
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=1.0)
            with suppress(OSError):
                if time.time() - begun.stat().st_mtime > longest_s:
                    return None
    finally:
        kill_group(process)


def opened(args: argparse.Namespace, experiments: Sequence[Experiment], device: str) -> Record:
    """Record of the directory that results of the experiments are added to."""
    any_machine = not any(experiment.measures for experiment in experiments)
    return open_record(args.output, environment(device), quick=args.quick, any_machine=any_machine)


def is_done(experiment: Experiment, record: Record, directory: Path) -> bool:
    """Whether an earlier run has measured all points, and its table is still there."""
    known = record.outcomes.get(experiment.name)
    return known is not None and known.state is State.DONE and (directory / f"{experiment.name}.csv").exists()


def run(args: argparse.Namespace) -> int:
    """Run the chosen experiments, and write the README; exit status."""
    experiments = chosen(args.experiments)
    device = check_device(args.device)
    deadline = time.monotonic() + parse_duration(args.budget) if args.budget else math.inf
    if args.share:
        rehearse_share(args, experiments, device, deadline)
        return DONE
    if args.fill_cache:
        fill_cache(args, experiments, device, deadline)
        return DONE
    try:
        args.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot use {args.output}: {error.strerror}") from error
    if args.only_readme:
        known = read_record(args.output)  # of any environment
        return draw_again(known or Record(environment(device), args.quick, {}), args.output, experiments)
    record = opened(args, experiments, device)
    failed = False
    for experiment in experiments:
        if not args.in_process and is_done(experiment, record, args.output):
            continue  # without starting a process
        outcome = run_one(experiment, args, device, deadline)
        failed |= outcome.state is State.FAILED
        if not args.in_process:
            say(f"{experiment.name}: {outcome.state}{': ' if outcome.reason else ''}{outcome.reason}")
        failed |= not _recorded(opened(args, experiments, device).having(experiment.name, outcome), args.output)
    if not args.in_process:
        _report(opened(args, experiments, device), args.output, experiments)
    return FAILED if failed else DONE


def draw_again(record: Record, directory: Path, experiments: Sequence[Experiment]) -> int:
    """Write figures and README.md anew from the tables of a directory; exit status."""
    outcomes = [draw(experiment, directory) for experiment in experiments]
    _report(record, directory, experiments)
    return FAILED if any(outcome.state is State.FAILED for outcome in outcomes) else DONE


def _recorded(record: Record, directory: Path) -> bool:
    try:
        record.write(directory)
        write_readme(directory, EXPERIMENTS, record.environment, record.outcomes, quick=record.quick)
    except OSError as error:
        say(disk_fault(error))
        return False
    return True


def _report(record: Record, directory: Path, experiments: Sequence[Experiment]) -> None:
    """Print a line for each experiment: verdict and measured result, or why there is none."""
    _recorded(record, directory)
    for result in results_in(directory, experiments):
        outcome = record.outcomes.get(result.experiment.name, Outcome(State.PAUSED, "not run yet"))
        if result.verdict is not None:
            print(f"{result.experiment.name}: {result.verdict.word}: {result.verdict.measured}")
        else:
            print(f"{result.experiment.name}: {outcome.state}: {outcome.reason}")


def main() -> int:
    """Run the command; exit status."""
    args = parsed()
    if args.list:
        print(markdown_table(("experiment", "source", "claim"), [(e.name, e.source, e.claim) for e in EXPERIMENTS]))
        return DONE
    try:
        return run(args)
    except CostmodelError as error:
        say(f"error: {error}")
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    faulthandler.enable()  # a library's crash says where
    sys.exit(main())
