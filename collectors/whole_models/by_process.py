"""Whole models, each in several processes of its own: what differs from process to process averages out.

    python -m collectors.whole_models.by_process cases.json models.jsonl --times 2 --mode default --seconds 560

Where the host decides, two processes on one machine issue the same model in times that differ by some 5 %, from start
to end. So a model is prepared in a process of its own, many of them side by side; then one process at a time on each
device measures, in short rounds, a reference pass, eager and, with `--mode`, compiled calls in turn, while the others
wait. Records are like those of `collectors.whole_models.collect`, one for each process, with all rounds and
`probes_us`: the host probe before each round and after the last. With `--launch-us` records of a host that needs longer
for a launch are not kept: calls on a disturbed host, replays of graphs among them, take up to twice as long, which the
probe does not make up for. If it is so for most of a block, no more are begun.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from collectors.processes.environment import environment
from collectors.processes.process import pinned
from collectors.processes.process_pool import ONE_THREAD
from collectors.whole_models.collect import append, check_environment, count_records
from collectors.whole_models.timing import MODES, build, compile_mode, first_tensor
from collectors.workloads.model_cases import Case, case_key
from costmodel.calibration.record import EAGER_ALONE, PROBES
from costmodel.errors import CostmodelError
from costmodel.report.progress import tracked

ROUNDS = 8
LATENCY_SECONDS, LEAST_CALLS = 0.04, 5
PREPARE_SECONDS, MEASURE_SECONDS = 240.0, 60.0
"""A process that takes longer is given up."""
PRELOADED = (
    "torch",
    "torchvision",
    "timm",
    "costmodel.zoo",
    "costmodel.measurement.timers",
    "collectors.whole_models.timing",
)
"""What processes have in common: loaded once, in a process that others are forked from before any uses the device."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How cases are measured.

    Attributes:
        devices: `cpu`, `cuda` or `cuda:N`; several of one kind are used side by side.
        seconds: how long it may take; a block of processes that is not expected to end by then is not begun.
        times: in how many processes each case is measured.
        held: how many processes prepare side by side and then wait for their turn.
        mode: of torch.compile, which is measured too; none if it is None.
        launch_us: records are kept if the probe said at most this, in the median; all of them if it is None.
    """

    devices: tuple[str, ...] = ("cuda",)
    seconds: float = 560.0
    times: int = 2
    held: int = 24
    mode: str | None = None
    launch_us: float | None = None


def collect(cases: Sequence[Case], out: Path, settings: Settings) -> None:
    """Measures cases until `out` holds each so many times as it should, or the time is up; prints a line for a block.

    Raises:
        DatasetError: `out` was begun in another environment.
    """
    begin = time.monotonic()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "inductor"))
    os.environ.update(ONE_THREAD)
    for device in settings.devices:
        pinned(device)  # a name that is none is found out before anything is measured
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in PRELOADED if _can_import(name)])
    check_environment(out, environment(settings.devices[0]))
    session = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M")
    took, counts = 0.0, count_records(out)
    for block in tracked(_blocks(cases, counts, settings), "measuring block of processes"):
        start = time.monotonic()
        if start + took - begin > settings.seconds:
            break
        records = []
        for record in _measured(block, settings, context):
            records.append(record)
            if not _is_disturbed(record, settings.launch_us):
                counts[case_key(record)] += 1
                append(out, record | {"session": session, "process": counts[case_key(record)]})
        took = time.monotonic() - start
        disturbed = sum(_is_disturbed(record, settings.launch_us) for record in records)
        print(_said(records, disturbed, took), flush=True)
        if disturbed > len(block) / 2:
            print(f"stopped: a launch takes more than {settings.launch_us} us on this host", flush=True)
            break


def _can_import(name: str) -> bool:
    """Whether a module is there and loads; a torchvision that was made for another torch does not, by itself."""
    try:
        importlib.import_module(name)
    except (ImportError, RuntimeError):
        return False
    return True


def _is_disturbed(record: Mapping[str, Any], launch_us: float | None) -> bool:
    """Whether a record was taken on a host that needed longer than that for a launch."""
    return launch_us is not None and record.get("probe_us", 0.0) > launch_us


def _said(records: Sequence[dict[str, Any]], disturbed: int, seconds: float) -> str:
    """A line about a block."""
    probes = [us for record in records for us in record.get(PROBES, [])]
    failed = [f"{case_key(record)}: {record['error']}" for record in records if "error" in record]
    host = (
        f"a launch {min(probes):.1f} to {max(probes):.1f} us, mostly {statistics.median(probes):.1f}" if probes else ""
    )
    left_out = f", {disturbed} of them not kept" if disturbed else ""
    return "; ".join([f"{len(records)} from {case_key(records[0])} on in {seconds:.0f} s{left_out}", host, *failed])


def _blocks(cases: Sequence[Case], done: Counter[str], settings: Settings) -> list[Sequence[Case]]:
    """What is left to measure, a pass over all cases after the other, in blocks that are held at once."""
    blocks: list[Sequence[Case]] = []
    for turn in range(settings.times):
        left = [case for case in cases if done[case_key(case)] <= turn]
        blocks += [left[first : first + settings.held] for first in range(0, len(left), settings.held)]
    return blocks


@dataclass(frozen=True, slots=True)
class _Held:
    """A process that prepares a case, and the connection that it answers on."""

    case: Case
    process: BaseProcess
    answers: Connection

    def answer(self, seconds: float) -> dict[str, Any] | None:
        """What it says next: None if it is ready, else its record, or what became of it."""
        if not self.answers.poll(seconds):
            self.process.kill()
            return dict(self.case, error="timeout")
        try:
            said: dict[str, Any] | None = self.answers.recv()
        except EOFError:
            self.process.join()
            return dict(self.case, error=f"its process ended with status {self.process.exitcode}")
        return said

    def end(self) -> None:
        """Ends it, whatever it does."""
        self.process.kill()
        self.process.join()


def _measured(
    cases: Sequence[Case], settings: Settings, context: multiprocessing.context.ForkServerContext
) -> Iterator[dict[str, Any]]:
    """The record of each case, or of what became of its process; on each device one at a time measures."""
    lanes = len(settings.devices)
    with ExitStack() as running:
        held = []
        for index, case in enumerate(cases):
            here, there = context.Pipe()
            task = (case, settings.devices[index % lanes], settings.mode, there)
            process = context.Process(target=hold, args=task, daemon=True)
            process.start()
            there.close()
            held.append(_Held(case, process, here))
            running.callback(held[-1].end)
        end = time.monotonic() + PREPARE_SECONDS
        preparing = [one.answers for one in held]
        while preparing and time.monotonic() < end:
            ready = wait(preparing, timeout=1.0)
            preparing = [one for one in preparing if one not in ready]
        for first in range(0, len(held), lanes):
            yield from _turn(held[first : first + lanes])


def _turn(beside: Sequence[_Held]) -> Iterator[dict[str, Any]]:
    """The records of processes that measure at the same time, each on a device of its own; then they end."""
    records = [one.answer(0.0) for one in beside]
    for one, record in zip(beside, records, strict=True):
        if record is None:
            one.answers.send("go")
    for one, record in zip(beside, records, strict=True):
        yield record or one.answer(MEASURE_SECONDS) or dict(one.case, error="said nothing")
        one.end()


def hold(case: Case, device: str, mode: str | None, answers: Connection) -> None:
    """Prepares a case, says so (None), waits, measures, says what was found; or says what was raised."""
    try:
        variables, name = pinned(device)
        os.environ.update(variables)  # before CUDA is first used
        measure = prepared(case, name, mode)
        answers.send(None)
        answers.recv()
        record = measure()
    except Exception as error:  # noqa: BLE001 - whatever a model raises is its result
        record = dict(case, error=f"{type(error).__name__}: {error}"[:300])
    answers.send(record)


def prepared(case: Case, device: str, mode: str | None) -> Callable[[], dict[str, Any]]:
    """What measures a case, with everything built, compiled and called before."""
    import torch

    module, x = build(case, device)
    record: dict[str, Any] = dict(case, input_shape=list(x.shape))
    calls: dict[str, Callable[[], Any]] = {f"{EAGER_ALONE}/{mode}" if mode else EAGER_ALONE: partial(module, x)}
    with torch.no_grad():
        for _ in range(3):
            reference = first_tensor(module(x))
        if mode:
            calls[mode] = compile_mode(module, x, mode, MODES[mode], device, reference, record)
    return torch.no_grad()(partial(_measure, record, calls, device))


def _measure(record: dict[str, Any], calls: dict[str, Callable[[], Any]], device: str) -> dict[str, Any]:
    """Rounds of a probe and of each call."""
    from costmodel.measurement.timers import host_probe, latency

    probes = [host_probe(device, seconds=0.15)]
    rounds: dict[str, list[list[float]]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            rounds[name].append(latency(call, LATENCY_SECONDS, LEAST_CALLS, device).quantiles_us())
        probes.append(host_probe(device, seconds=0.0))
    return record | {"latency_us": rounds, PROBES: probes, "probe_us": statistics.median(probes)}


def main() -> None:
    """Measures the cases of a JSON file within a number of seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path, help="records, JSON lines")
    parser.add_argument("--devices", nargs="+", default=("cuda",), help="cpu, cuda or cuda:N; used side by side")
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--held", type=int, default=24)
    parser.add_argument("--mode", choices=MODES, help="of torch.compile, measured too")
    parser.add_argument("--launch-us", type=float, help="not on a host that needs longer for a launch, microseconds")
    args = vars(parser.parse_args())
    cases, out = args.pop("cases"), args.pop("out")
    args["devices"] = tuple(args["devices"])
    try:
        collect(json.loads(cases.read_text()), out, Settings(**args))
    except (CostmodelError, OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
