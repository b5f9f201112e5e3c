"""`costmodel collect [WORKLOAD...]`: measures units on this machine, into a ledger that training reads."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from collectors.sweep.supervisor import Report
from collectors.sweep.sweep import Settings
from collectors.workloads.cases import Case
from costmodel.cli import options
from costmodel.cli.output import note, opened
from costmodel.errors import CostmodelError, MeasurementError, RequestError

Sweep = Callable[["Sequence[Case]", Path, "Settings", "Report"], None]
"""Measures cases into a ledger."""
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 30 * 24 * 3600.0
Workloads = Annotated[
    list[str] | None,
    typer.Argument(metavar="[WORKLOAD]...", help="conv, matmul, layer, models, host; default: conv, matmul and layer."),
]
Name = Annotated[
    str | None, typer.Option("--hardware", metavar="NAME", help="The profile being made; default: after the device.")
]
Device = Annotated[
    str | None, typer.Option("--device", metavar="cpu|cuda|cuda:N", help="Where to measure; default: cuda if there.")
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="How long it may take: 90s, 20m, 1h.")]
HostName = Annotated[
    str | None, typer.Option("--host", metavar="NAME", help="What the workload `host` calls this machine.")
]
Directory = Annotated[
    Path | None,
    typer.Option("--directory", help="Where the measurements go; default: the user's profiles."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Of a CPU that is measured; default: as many as torch takes.")
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS|local", help="Measure on a Dask cluster; local: on all GPUs here."),
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="With --scheduler local: how many devices.")
]
Quick = Annotated[bool, typer.Option("--quick", help="A few tiny units, to try it out.")]

if TYPE_CHECKING:
    from collectors.sweep.supervisor import Progress

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
    from collectors.workloads import catalog as known

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
    from collectors.processes.host_noise import watch_host
    from costmodel.profiles.hosts import save_host

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
    from collectors.sweep.rounds import sweep_in_rounds
    from collectors.sweep.sweep import Settings
    from collectors.workloads import catalog

    request = {"workloads": sorted(names), "device": device.partition(":")[0], "quick": quick}
    path = directory / f"cases-{'-'.join(sorted(names))}{'-quick' if quick else ''}.jsonl"
    cases = catalog.remembered(path, request)
    if cases is None:
        begin = time.monotonic()
        note("choosing what to measure", quiet)
        capture_end = begin + (end - begin) * _CAPTURE_SHARE
        cases = catalog.unit_cases(names, device, quick, capture_end)
        if time.monotonic() < capture_end:  # complete
            catalog.remember(path, request, cases)
    if not cases:
        raise MeasurementError("nothing to measure could be made in that time; give a larger --budget")
    choice, settings = path.with_name(f"{path.stem}.round.jsonl"), Settings(device, max(0.0, end - time.monotonic()))
    with _bar(quiet) as report:
        sweep_in_rounds(cases, directory / "ledger.sqlite", choice, request, settings, report, sweep)


def _collect_models(directory: Path, device: str, end: float, quick: bool, quiet: bool) -> None:
    """In a process of its own: whole models leave Dynamo, Inductor and the allocator in a state."""
    from collectors.processes.process import describe_exit, last_words, pinned, running
    from collectors.workloads import catalog
    from collectors.workloads.cases import write_whole

    seconds = end - time.monotonic()
    if seconds < 1:
        note("no time is left for whole models", quiet)
        return
    cases, out, log = directory / "models.json", directory / "models.jsonl", directory / "models.log"
    write_whole(cases, json.dumps(catalog.model_cases(device, quick)))
    command = [sys.executable, "-m", "collectors.whole_models.collect", str(cases), str(out)]
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
    """A progress bar on standard error, if that is a terminal and the user has not asked for quiet."""
    from costmodel.report.progress import progress_bar

    with progress_bar(quiet=quiet, has_estimate=False) as update:
        yield lambda progress: update(progress.done, progress.total, _describe(progress))


def _describe(progress: Progress) -> str:
    """`round 2: measuring 30/90 cases, 20 units/min, 02:00 left`, in rounds of the whole budget."""
    from costmodel.report.figures import duration

    left = progress.seconds_left if progress.budget_left is None else progress.budget_left
    remaining = "" if left is None else f", {duration(left)} left"
    number = "" if progress.round is None else f"round {progress.round}: "
    done = f"{number}{progress.phase} {progress.done}/{progress.total} cases"
    return f"{done}, {progress.units_per_minute:.0f} units/min{remaining}"


def _tell(directory: Path, name: str) -> None:
    """The end of a collection, on standard output."""
    from collectors.sweep.sweep import tally
    from collectors.whole_models.collect import done_keys

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


def check_cluster(
    names: Sequence[str], device: str | None, hardware: str | None, scheduler: str | None, workers: int | None
) -> None:
    """Refuses what a cluster cannot do.

    Args:
        names: the workloads.
        device: as it was asked for.
        hardware: the name of the profile, if one was given.
        scheduler: an address, `local`, or None for no cluster.
        workers: how many were asked for.

    Raises:
        RequestError: with the reason.
    """
    from collectors.workloads.catalog import UNIT_WORKLOADS

    if workers is not None and scheduler != "local":
        raise RequestError("--workers goes with --scheduler local; a cluster elsewhere has the workers that it has")
    if scheduler is None:
        return
    if importlib.util.find_spec("distributed") is None:
        raise RequestError("--scheduler needs Dask; pip install 'costmodel[dask]'")
    if other := [name for name in names if name not in UNIT_WORKLOADS]:
        raise RequestError(f"{other[0]} is measured on one machine by itself; give it without --scheduler")
    if device not in (None, "cpu", "cuda"):
        raise RequestError(f"with --scheduler the device is cpu or cuda, not {device!r}; CUDA_VISIBLE_DEVICES chooses")
    if scheduler != "local" and hardware is None:
        raise RequestError("the device is on other machines: name the profile with --hardware NAME")


@contextmanager
def sweeper(scheduler: str | None, device: str, workers: int | None) -> Iterator[Sweep]:
    """What measures, for as long as the block takes.

    Raises:
        CostmodelError: there is no such cluster, or it has no workers.
    """
    if scheduler is None:
        from collectors.sweep.sweep import sweep

        yield sweep
        return
    from collectors.sweep.dask_cluster import cluster
    from collectors.sweep.dask_sweep import distribute

    with cluster(scheduler, device, workers) as client:
        yield partial(distribute, client)


def parse_duration(text: str) -> float:
    """Seconds that `90s`, `20m` or `1.5h` say.

    Raises:
        RequestError: the text is no such time, or one of no use.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise RequestError(f"impossible budget {text!r}; give a time up to 30 days, such as 90s, 20m or 1h")
    return seconds


def check_device(device: str | None) -> str:
    """The device to measure on, if it is there.

    Raises:
        RequestError: it is not, or is none of `cpu`, `cuda`, `cuda:N`.
    """
    import torch

    from collectors.processes.process import pinned

    count = torch.cuda.device_count() if torch.version.cuda is not None else 0
    if device is None:
        return "cuda" if count else "cpu"
    pinned(device)
    number = int(device.partition(":")[2] or 0)
    if device != "cpu" and number >= count:
        raise RequestError(f"there is no {device} here (CUDA devices: {count}); --device cpu measures the processor")
    return device


def check_name(name: str | None, device: str) -> str:
    """The name of the profile being made; by default one made of the device's.

    Raises:
        RequestError: it cannot be a directory's name, or is that of a shipped profile.
    """
    from costmodel.profiles.profile import shipped_directory

    shipped = shipped_directory()
    if name is None:
        name = _slug(device)
        return f"{name}-local" if (shipped / name).exists() else name
    check_form(name)
    if (shipped / name).exists():
        raise RequestError(f"the profile {name} is shipped and cannot be changed; choose another --hardware name")
    return name


def check_form(name: str) -> None:
    """Nothing, if a profile can be called so.

    Raises:
        RequestError: it cannot: the name is that of a directory.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise RequestError(f"impossible name {name!r} for a profile; use letters, digits, '-', '_' and '.'")


def make_directory(name: str, wanted: Path | None) -> Path:
    """The directory that measurements go to, made: the one wanted, else the profile's among the user's.

    Raises:
        RequestError: it cannot be made, or written to.
    """
    from costmodel.profiles.profile import user_directory

    directory = wanted or user_directory() / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make {directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK):
        raise RequestError(f"cannot write to {directory}")
    return directory


def _slug(device: str) -> str:
    import torch

    from costmodel.profiles.profile import profile_name

    said = "cpu" if device == "cpu" else torch.cuda.get_device_name(torch.device(device))
    return profile_name(said)
