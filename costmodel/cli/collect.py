"""`costmodel collect [WORKLOAD...]`: measure units and whole models on this machine for a hardware profile."""

from __future__ import annotations

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

from costmodel.cli import collect_checks as checks
from costmodel.cli import options
from costmodel.cli.output import note, opened
from costmodel.cli.sweep_progress import sweep_progress
from costmodel.errors import CostmodelError, MeasurementError

if TYPE_CHECKING:
    from collectors.sweep.settings import Report, SweepSettings
    from collectors.workloads.cases import UnitCase
    from costmodel.predictor.predictor import Base

Sweep = Callable[["Sequence[UnitCase]", Path, "SweepSettings", "Report"], None]
"""Measures cases into a ledger."""
_COLD_CASES = 2
"""Models whose compile time is also measured with empty caches, which scales the compile times of all."""
_HELD = 10
"""Training steps that are compiled before they are measured one after another; their memory adds up."""
_CAPTURE_SHARE = 0.15
"""Share of the budget for capturing the models that units are taken from."""
Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[WORKLOAD]...",
        help="conv, matmul, layer, tf32, bfloat16, casts, backward, models, amp, training, host; default: conv, matmul "
        "and layer.",
    ),
]
Name = Annotated[
    str | None, typer.Option("--hardware", metavar="NAME", help="Name of the profile; default: the device's name.")
]
Device = Annotated[
    str | None, typer.Option("--device", metavar="cpu|cuda|cuda:N", help="Device to measure; default: cuda if there.")
]
Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="Time budget: 90s, 20m, 1h.")]
HostName = Annotated[
    str | None, typer.Option("--host", metavar="NAME", help="Name of this machine for the workload `host`.")
]
Directory = Annotated[
    Path | None,
    typer.Option("--directory", help="Directory of the measurements; default: the user's profiles."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Threads of a CPU's kernels; default: as many as torch takes.")
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS|local", help="Measure on a Dask cluster; local: on all GPUs here."),
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", help="Number of devices, with --scheduler local.")
]
BaseName = Annotated[
    str | None,
    typer.Option(
        "--base",
        metavar="PROFILE|none",
        help="Profile to learn the difference from; default: the shipped profile whose device is most alike.",
    ),
]
Refresh = Annotated[
    bool,
    typer.Option("--refresh", help="Measure a sample to learn what another release of torch or a driver changed."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Measure a few tiny units, to try it out.")]


def collect(
    workloads: Workloads = None,
    hardware: Name = None,
    device: Device = None,
    budget: Budget = "20m",
    quick: Quick = False,
    base: BaseName = None,
    refresh: Refresh = False,
    host: HostName = None,
    threads: Threads = None,
    directory: Directory = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,  # noqa: ARG001 - main() acts on it
) -> None:
    """Measure units and models on this machine for a hardware profile. Interrupt it at any time; repeat it to resume.

    The workload `host` takes seconds: it measures this machine's CPU launch overhead, for `predict --host`.
    """
    from collectors.workloads import catalog

    end = time.monotonic() + checks.parse_duration(budget)
    names = catalog.check(workloads or ())
    checks.check_cluster(names, device, hardware, scheduler, workers)
    device = checks.check_device(device) if scheduler in (None, "local") else device or "cuda"
    checks.set_threads(threads, device)
    if "host" in names:
        _collect_host(host, device)
        if names == ("host",):
            return
    name = checks.check_name(hardware, device)
    directory = checks.make_directory(name, directory)
    local = scheduler in (None, "local")
    if local:
        checks.check_same(name, directory, device)
    chosen: Base | None
    if refresh:
        chosen, directory = checks.refreshed(name, directory, base)
    else:
        chosen = checks.base_of(base, name, device) if base or local else None
    units = [item for item in names if item in catalog.UNIT_WORKLOADS]
    try:
        if units:
            with _sweep_on(scheduler, device, workers) as sweep:
                _collect_units(units, directory, device, end, quick, quiet, sweep, chosen)
        for workload in ("models", "amp", "training"):
            if workload in names:
                _collect_models(workload, directory, device, end, quick, quiet)
    except KeyboardInterrupt:
        note("interrupted; measurements so far are kept, and the same command resumes", quiet)
        raise
    _print_summary(directory, name)


def _collect_host(name: str | None, device: str) -> None:
    """Measure this host's launch overhead and store it under a name.

    Raises:
        RequestError: the device is a CPU, where nothing is launched.
    """
    from collectors.processes.host_noise import watch_host
    from costmodel.profiles.hosts import save_host

    checks.check_launches(device)
    name = name or re.sub(r"[^A-Za-z0-9._-]+", "-", platform.node()).lstrip("0123456789.-_") or "host"
    probe_us = watch_host(device).usual_us
    path = save_host(name, probe_us)
    with opened(None) as write:
        write(f"host {name}: {probe_us:.2f} us a launch\nhosts: {path}\nnext: costmodel predict --host {name} MODEL\n")


@contextmanager
def _sweep_on(scheduler: str | None, device: str, workers: int | None) -> Iterator[Sweep]:
    """The sweep on this machine's device, or on a Dask cluster for as long as the block takes."""
    from collectors.sweep.executor import sweep

    if scheduler is None:
        yield sweep
        return
    from collectors.sweep.dask_cluster import cluster
    from collectors.sweep.dask_place import dask_place

    with cluster(scheduler, device, workers) as client:
        yield partial(sweep, open_place=partial(dask_place, client))


def _collect_units(
    names: Sequence[str],
    directory: Path,
    device: str,
    end: float,
    quick: bool,
    quiet: bool,
    sweep: Sweep,
    base: Base | None,
) -> None:
    from collectors.sweep.rounds import sweep_in_rounds
    from collectors.sweep.settings import SweepSettings
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
        raise MeasurementError("no unit could be generated in that time; give a larger --budget")
    choice = path.with_name(f"{path.stem}.round.jsonl")
    settings = SweepSettings(device, max(0.0, end - time.monotonic()))
    with sweep_progress(quiet) as report:
        sweep_in_rounds(cases, directory / "ledger.sqlite", choice, request, settings, report, sweep, base)


def _collect_models(workload: str, directory: Path, device: str, end: float, quick: bool, quiet: bool) -> None:
    """Measure whole models in a process of their own, as they leave state in Dynamo, Inductor and the allocator.

    The workload, `models`, `amp` or `training`, names the files. Each training step has a process of its own.
    """
    from collectors.processes.process import describe_exit, last_words, pinned, running
    from collectors.workloads import catalog
    from collectors.workloads.cases import write_whole

    seconds = end - time.monotonic()
    if seconds < 1:
        note("no time is left for whole models", quiet)
        return
    cases, out, log = (directory / f"{workload}.{suffix}" for suffix in ("json", "jsonl", "log"))
    chosen = {"amp": catalog.amp_cases, "training": catalog.step_cases}.get(workload, catalog.model_cases)
    write_whole(cases, json.dumps(chosen(device, quick)))
    command = [sys.executable, "-m", "collectors.whole_models.collect", str(cases), str(out)]
    variables, name = pinned(device)
    command += ["--device", name, "--seconds", str(seconds), "--parent", str(os.getpid())]
    command += [] if quick or workload != "models" else ["--cold", str(_COLD_CASES)]
    command += ["--times", "1", "--kernels", "--held", str(_HELD)] if workload == "training" else []
    note(f"measuring whole models; progress in {log}", quiet)
    with running(command, variables, log) as process:
        while process.poll() is None:
            time.sleep(0.2)
    if process.returncode != 0:
        raise MeasurementError(f"whole models: {describe_exit(process.returncode)}: {last_words(log)}; see {log}")


def _print_summary(directory: Path, name: str) -> None:
    """Print the number of units and models measured, and the next command."""
    from collectors.sweep.sweep import tally
    from collectors.whole_models.records import done_keys

    ledger, *whole = (directory / name for name in ("ledger.sqlite", "models.jsonl", "amp.jsonl", "training.jsonl"))
    lines = []
    if ledger.exists():
        units, ends = tally(ledger)
        listed = ", ".join(f"{count} {status}" for status, count in ends.most_common()) or "none yet"
        lines.append(f"{units} units, measured in {sum(ends.values())} cases: {listed}\nledger: {ledger}")
    lines += [f"{len(done_keys(path))} whole models: {path}" for path in whole if path.exists()]
    if not lines:
        raise CostmodelError("nothing was measured; give a larger --budget")
    with opened(None) as write:
        write("\n".join([*lines, f"next: costmodel train --hardware {name}\n"]))
