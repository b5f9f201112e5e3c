"""Whole models measured in processes of their own: prepared side by side, measured one at a time on each device.

While a case is measured every other process is idle. Two processes on one machine launch the kernels of one model in
times that differ by some 5 % from start to end, so a case measured in several processes averages that out.
"""

from __future__ import annotations

import select
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collectors.processes.process import pinned
from collectors.processes.process_pool import ONE_THREAD, default_processes
from collectors.whole_models.case_process import Job
from collectors.whole_models.compilation import modes_on
from collectors.whole_models.held_process import HeldProcess, start
from collectors.whole_models.records import Record, record_key
from collectors.whole_models.timing import RoundSettings
from collectors.workloads.model_cases import WholeModelCase

TURN_SECONDS = 3.0
"""Time reserved for each turn of a block before the end of a run."""
Start = tuple[Job, Mapping[str, str]]
"""A job, and environment variables of its process."""


@dataclass(frozen=True, slots=True)
class OwnProcessSettings:
    """Settings of processes that measure one case each.

    Attributes:
        times: number of processes that measure each case.
        processes: number of processes that prepare at once.
        held: number of processes that are prepared before measuring begins.
        ready_s: deadline from the start of a process until it is ready.
        measure_s: deadline of a turn.
        launch_us: records are kept if the host probe's median is at most this; all are kept if it is None.
        rounds: settings of the rounds of a latency.
    """

    times: int = 1
    processes: int = default_processes()
    held: int = 24
    ready_s: float = 240.0
    measure_s: float = 60.0
    launch_us: float | None = None
    rounds: RoundSettings = field(default_factory=RoundSettings)


def latencies(
    cases: Sequence[WholeModelCase],
    done: Mapping[str, int],
    devices: Sequence[str],
    modes: Sequence[str],
    settings: OwnProcessSettings,
    end: float,
) -> Iterator[Record]:
    """Measure latencies until each case has its number of records, the time is up, or the host is disturbed.

    Args:
        cases: cases to measure.
        done: number of records of each case so far, by key.
        devices: devices of one kind, used side by side.
        modes: modes of torch.compile; without any, eager calls are measured alone.
        settings: number of processes, deadlines, rounds.
        end: monotonic seconds.
    """
    longest = 0.0
    for block in blocks(cases, done, settings):
        begin = time.monotonic()
        if end - begin < max(longest, TURN_SECONDS * len(block)):
            return
        disturbed = 0
        for record in _measure_block(block, devices, modes, settings, end):
            if is_disturbed(record, settings.launch_us):
                disturbed += 1
            else:
                yield record
        longest = max(longest, time.monotonic() - begin)
        if disturbed > len(block) / 2:
            print(f"stopped: a launch takes more than {settings.launch_us} us on this host", flush=True)
            return


def blocks(
    cases: Sequence[WholeModelCase], done: Mapping[str, int], settings: OwnProcessSettings
) -> list[Sequence[WholeModelCase]]:
    """Cases left to measure, one pass over all cases after the other, in blocks that are held at once."""
    found: list[Sequence[WholeModelCase]] = []
    for turn in range(settings.times):
        left = [case for case in cases if done.get(record_key(case), 0) <= turn]
        found += [left[first : first + settings.held] for first in range(0, len(left), settings.held)]
    return found


def is_disturbed(record: Record, launch_us: float | None) -> bool:
    """Whether a record was measured on a host that needed longer than that for a launch."""
    return launch_us is not None and record.get("probe_us", 0.0) > launch_us


def _measure_block(
    block: Sequence[WholeModelCase],
    devices: Sequence[str],
    modes: Sequence[str],
    settings: OwnProcessSettings,
    end: float,
) -> Iterator[Record]:
    starts: list[Start] = []
    for index, case in enumerate(block):
        variables, name = pinned(devices[index % len(devices)])
        job = Job(case, name, tuple(modes_on(name, modes)), "latency", settings.rounds)
        starts.append((job, {**variables, **ONE_THREAD}))
    with tempfile.TemporaryDirectory(prefix="own_processes_") as folder:
        held = prepare(starts, Path(folder), settings, end - TURN_SECONDS * len(block))
        try:
            for first in range(0, len(held), len(devices)):
                yield from _turn(held[first : first + len(devices)], settings.measure_s, end)
        finally:
            for one in held:
                one.stop()


def _turn(beside: Sequence[HeldProcess], seconds: float, end: float) -> Iterator[Record]:
    """Records of processes that measure at the same time, each on a device of its own."""
    going = [one for one in beside if one.ready and time.monotonic() < end]
    for one in going:
        one.start_turn()
    for one in going:
        one.finish_turn(min(seconds, max(TURN_SECONDS, end + TURN_SECONDS - time.monotonic())))
    yield from (one.record for one in beside if one.record is not None)


def prepare(starts: Sequence[Start], folder: Path, settings: OwnProcessSettings, end: float) -> list[HeldProcess]:
    """Start processes side by side, and wait until each is ready or has ended; those that are not at `end` are stopped.

    Args:
        starts: job and environment variables of each process.
        folder: directory of their logs.
        settings: number of processes that prepare at once, deadline.
        end: monotonic seconds.
    """
    held: list[HeldProcess] = []
    preparing: list[HeldProcess] = []
    waiting = deque(enumerate(starts))
    try:
        while waiting or preparing:
            if time.monotonic() > end:
                waiting.clear()
            while waiting and len(preparing) < settings.processes:
                index, (job, variables) = waiting.popleft()
                preparing.append(start(job, folder / f"log{index}", variables, settings.ready_s))
                held.append(preparing[-1])
            select.select([one.process.stdout for one in preparing if one.process.stdout], [], [], 0.2)
            preparing = [one for one in preparing if not one.settled(end)]
    except BaseException:
        for one in held:
            one.stop()
        raise
    return held


def interleaved(groups: Sequence[Sequence[WholeModelCase]]) -> list[WholeModelCase]:
    """Cases of groups in turn, spread evenly, so that a run that is cut has done the same share of each group."""
    spread = [
        ((index + 0.5) / len(group), number, case)
        for number, group in enumerate(groups)
        for index, case in enumerate(group)
    ]
    return [case for _, _, case in sorted(spread, key=lambda item: item[:2])]
