"""`costmodel collect [WORKLOAD...]`: measures units on this machine, into a ledger that training reads."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.cli import options
from costmodel.cli.cluster import Sweep, check_cluster, sweeper
from costmodel.cli.collect_options import (
    Budget,
    Device,
    Directory,
    HostName,
    Name,
    Quick,
    Scheduler,
    Threads,
    Workers,
    Workloads,
    check_device,
    check_name,
    make_directory,
    parse_duration,
)
from costmodel.cli.output import note, opened
from costmodel.errors import CostmodelError, MeasurementError, RequestError

if TYPE_CHECKING:
    from collectors.supervise import Progress

_COLD_CASES = 2
"""Of so many models the time to compile is taken with empty caches, this process alone: the scale of the others'."""
_CAPTURE_SHARE = 0.15
"""The part of the budget that may go into capturing the models that layers are taken from."""


def collect(
    workloads: Workloads = None,
    hardware: Name = None,
    device: Device = None,
    budget: Budget = "20m",
    quick: Quick = False,
    host: HostName = None,
    threads: Threads = None,
    directory: Directory = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Measure units on this machine for a hardware profile. May be interrupted, and given again to go on.

    The workload `host` takes seconds: it tells how fast this machine's CPU issues kernels, for `predict --host`.
    """
    from collectors import workloads as known

    seconds = parse_duration(budget)
    end = time.monotonic() + seconds
    names = known.check(workloads or ())
    check_cluster(names, device, hardware, scheduler, workers)
    device = check_device(device) if scheduler in (None, "local") else device or "cuda"
    _pin_threads(threads, device)
    if "host" in names:
        _collect_host(host, device)
        if names == ("host",):
            return
    name = check_name(hardware, device)
    directory = make_directory(name, directory)
    units = [item for item in names if item in known.UNIT_WORKLOADS]
    try:
        if units:
            with sweeper(scheduler, device, workers) as sweep:
                _collect_units(units, directory, device, end, quick, quiet, sweep)
        if "models" in names:
            _collect_models(directory, device, end, quick, quiet)
    except KeyboardInterrupt:
        note("interrupted; what was measured is kept, and the same command goes on", quiet)
        raise
    _tell(directory, name)


def _pin_threads(threads: int | None, device: str) -> None:
    """Has this process, and with it those that it starts to measure, run kernels on so many threads.

    Raises:
        RequestError: the device is no CPU, or has fewer cores.
    """
    import torch

    if device != "cpu":
        if threads is not None:
            raise RequestError("--threads is for --device cpu; a GPU's kernels run on none")
        return
    cores = os.cpu_count() or 1
    if threads is not None and threads > cores:
        raise RequestError(f"--threads {threads} are more than the {cores} cores of this machine")
    if threads is not None:
        torch.set_num_threads(threads)


def _collect_host(name: str | None, device: str) -> None:
    """Measures this host and keeps it under a name.

    Raises:
        RequestError: the device is no GPU: a CPU issues nothing.
    """
    from collectors.quiet import watch_host
    from costmodel.hosts import save_host

    if device == "cpu":
        raise RequestError("a host's speed shows on a GPU only; give --device cuda on a machine that has one")
    name = name or re.sub(r"[^A-Za-z0-9._-]+", "-", platform.node()).lstrip("0123456789.-_") or "host"
    probe_us = watch_host(device).usual_us
    path = save_host(name, probe_us)
    with opened(None) as write:
        write(f"host {name}: {probe_us:.2f} us a launch\nhosts: {path}\nnext: costmodel predict --host {name} MODEL\n")


def _collect_units(
    names: Sequence[str], directory: Path, device: str, end: float, quick: bool, quiet: bool, sweep: Sweep
) -> None:
    from collectors import workloads
    from collectors.rounds import sweep_in_rounds
    from collectors.sweep import Settings

    request = {"workloads": sorted(names), "device": device.partition(":")[0], "quick": quick}
    path = directory / f"cases-{'-'.join(sorted(names))}{'-quick' if quick else ''}.jsonl"
    cases = workloads.remembered(path, request)
    if cases is None:
        begin = time.monotonic()
        note("choosing what to measure", quiet)
        capture_end = begin + (end - begin) * _CAPTURE_SHARE
        cases = workloads.unit_cases(names, device, quick, capture_end)
        if time.monotonic() < capture_end:  # complete
            workloads.remember(path, request, cases)
    if not cases:
        raise MeasurementError("nothing to measure could be made in that time; give a larger --budget")
    choice, settings = path.with_name(f"{path.stem}.round.jsonl"), Settings(device, max(0.0, end - time.monotonic()))
    with _bar(quiet) as report:
        sweep_in_rounds(cases, directory / "ledger.sqlite", choice, request, settings, report, sweep)


def _collect_models(directory: Path, device: str, end: float, quick: bool, quiet: bool) -> None:
    """In a process of its own: whole models leave Dynamo, Inductor and the allocator in a state."""
    from collectors import workloads
    from collectors.cases import write_whole
    from collectors.process import describe_exit, last_words, pinned, running

    seconds = end - time.monotonic()
    if seconds < 1:
        note("no time is left for whole models", quiet)
        return
    cases, out, log = directory / "models.json", directory / "models.jsonl", directory / "models.log"
    write_whole(cases, json.dumps(workloads.model_cases(device, quick)))
    command = [sys.executable, "-m", "collectors.models", str(cases), str(out)]
    variables, name = pinned(device)
    command += ["--device", name, "--seconds", str(seconds), "--parent", str(os.getpid())]
    command += [] if quick else ["--cold", str(_COLD_CASES)]
    note(f"measuring whole models; progress in {log}", quiet)
    with running(command, variables, log) as process:
        while process.poll() is None:
            time.sleep(0.2)
    if process.returncode != 0:
        raise MeasurementError(f"whole models: {describe_exit(process.returncode)}: {last_words(log)}; see {log}")


@contextmanager
def _bar(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Shows progress on standard error, if that is a terminal and somebody wants to see it."""
    if quiet or not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from tqdm import tqdm

    with tqdm(total=0, leave=False, bar_format="{desc} |{bar}|") as bar:

        def report(progress: Progress) -> None:
            bar.total, bar.n = progress.total, progress.done
            bar.set_description_str(_describe(progress))

        yield report


def _describe(progress: Progress) -> str:
    """`round 2: measuring 30/90 cases, 20 units/min, 02:00 left`, in rounds of the whole budget."""
    from tqdm import tqdm

    left = progress.seconds_left if progress.budget_left is None else progress.budget_left
    remaining = "" if left is None else f", {tqdm.format_interval(left)} left"
    number = "" if progress.round is None else f"round {progress.round}: "
    done = f"{number}{progress.phase} {progress.done}/{progress.total} cases"
    return f"{done}, {progress.units_per_minute:.0f} units/min{remaining}"


def _tell(directory: Path, name: str) -> None:
    """The end of a collection, on standard output."""
    from collectors.models import done_keys
    from collectors.sweep import tally

    ledger, models = directory / "ledger.sqlite", directory / "models.jsonl"
    lines = []
    if ledger.exists():
        units, ends = tally(ledger)
        listed = ", ".join(f"{count} {status}" for status, count in ends.most_common()) or "none yet"
        lines.append(f"{units} units, measured in {sum(ends.values())} cases: {listed}\nledger: {ledger}")
    if models.exists():
        lines.append(f"{len(done_keys(models))} whole models: {models}")
    if not lines:
        raise CostmodelError("nothing was measured; give a larger --budget")
    with opened(None) as write:
        write("\n".join([*lines, f"next: costmodel train --hardware {name}\n"]))
