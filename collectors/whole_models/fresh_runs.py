"""Runs of fresh processes: prepared side by side, measured one at a time, each with a deadline.

While a case is measured every other process is idle: preparing (imports, building, for latencies also compiling) goes
on in blocks, and measuring begins when a block is ready. A record of every end is kept: result, error, `oom`,
`timeout`, or the signal that killed the process.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from collectors.processes.process import describe_exit, kill_group, last_words
from collectors.whole_models.fresh_case import Job, Record

ROOT = Path(__file__).parents[2]
SKIPPED = re.compile(r"skipping cudagraphs?.*", re.IGNORECASE)
"""What Inductor logs where it does not use a CUDA graph."""
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")
"""Variables that a process is given anew."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a process may take, and how many processes there are.

    Attributes:
        ready_s: from its start until it is ready.
        measure_s: from its turn to its end.
        processes: that prepare at once.
        held: that are prepared before measuring begins.
        end: of everything, monotonic.
    """

    ready_s: float
    measure_s: float
    processes: int
    held: int
    end: float


@dataclass(slots=True)
class Child:
    """A process with a job, its log, and what it has written so far."""

    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    written: bytes = b""
    ready_by: float = 0.0
    ready: bool = False
    cut: bool = False
    """Whether it was stopped because the time of its block was up."""
    lines: list[str] = field(default_factory=list)

    def line(self, deadline: float) -> str | None:
        """The next line of output; None at the deadline, empty at the end of output."""
        assert self.process.stdout
        while b"\n" not in self.written:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return ""
            self.written += more
        first, _, self.written = self.written.partition(b"\n")
        return first.decode() + "\n"

    def stop(self) -> None:
        """Kills the process and all that it started."""
        kill_group(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]


def start(job: Job, cache: Path, log: Path, threads: int | None = None) -> Child:
    """A process that prepares a job, with Inductor's cache in a folder, and torch's or a given number of threads."""
    variables = {name: value for name, value in os.environ.items() if name not in CACHES}
    variables |= {
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    if threads:
        variables |= {"TORCHINDUCTOR_COMPILE_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "collectors.whole_models.fresh_process", json.dumps(asdict(job)), str(os.getpid())]
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter on our own module
            command,
            env=variables,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    return Child(job, process, log)


def settled(child: Child, block_end: float) -> bool:
    """Whether a process is ready for its turn, or has ended; why it ended, or what it wrote, is kept in `lines`."""
    line = child.line(0.0)
    late = time.monotonic() > child.ready_by
    child.cut = line is None and time.monotonic() > block_end
    if line is None and not late and not child.cut:
        return False
    child.ready = line == "ready\n"
    if not child.ready:
        if not child.cut:
            child.lines.append(line or json.dumps(_ended(child, "preparing", late=line is None)))
        child.stop()
    return True


def take_turn(child: Child, seconds: float) -> None:
    """Lets a ready process measure, alone, and collects its records; it is gone afterwards."""
    assert child.process.stdin
    deadline = time.monotonic() + seconds
    line: str | None = ""
    try:
        child.process.stdin.write(b"go\n")
        child.process.stdin.flush()
        while line := child.line(deadline):
            child.lines.append(line)
    except BrokenPipeError:
        line = ""
    if len(child.lines) < len(child.job.modes):
        child.lines.append(json.dumps(_ended(child, "measuring", line is None)))
    child.stop()


def _ended(child: Child, step: str, late: bool) -> Record:
    """The record of a process that wrote none: it was late, or it died."""
    record: Record = {**asdict(child.job), "mode": child.job.only_mode, "step": step}
    if late:
        return record | {"status": "timeout"}
    return record | {"status": describe_exit(child.process.wait()), "error": last_words(child.log)[:300]}


def records(child: Child) -> list[Record]:
    """What a process found: a record for each mode that it got to, and one for an end before all."""
    found = [json.loads(line) for line in child.lines]
    text = child.log.read_text(errors="replace") if child.log.exists() else ""
    reasons = list(dict.fromkeys(match.group()[:300] for match in SKIPPED.finditer(text)))
    for record in found:
        record.pop("modes", None)
        if record.get("cudagraph_skips"):
            record["skip_reasons"] = reasons
    return found


def run_latency(jobs: Sequence[Job], limits: Limits) -> Iterator[list[Record]]:
    """Latencies: blocks of processes compile side by side, then measure one by one. Yields records of a process."""
    with tempfile.TemporaryDirectory(prefix="fresh_runs_") as folder:
        cache = Path(folder) / "cache"
        for first in range(0, len(jobs), limits.held):
            block = jobs[first : first + limits.held]
            if limits.end - time.monotonic() < limits.measure_s:
                return
            # What is ready must still be measured: leave some seconds for each.
            block_end = limits.end - 3.0 * len(block)
            children = _prepared([(job, cache, 1) for job in block], Path(folder), limits, block_end)
            yield from _measured(children, limits)


def _prepared(
    starts: Sequence[tuple[Job, Path, int | None]], folder: Path, limits: Limits, block_end: float
) -> list[Child]:
    """Processes side by side, until each is ready or has ended; what is not at the block's end is stopped.

    All in this thread, as a process dies with the thread that started it.
    """
    children: list[Child] = []
    flying: list[Child] = []
    waiting = deque(enumerate(starts))
    while waiting or flying:
        if time.monotonic() > block_end:
            waiting.clear()
        while waiting and len(flying) < limits.processes:
            index, (job, cache, threads) = waiting.popleft()
            child = start(job, cache, folder / f"log{index}", threads)
            child.ready_by = time.monotonic() + limits.ready_s
            children.append(child)
            flying.append(child)
        select.select([child.process.stdout for child in flying if child.process.stdout], [], [], 0.2)
        flying = [child for child in flying if not settled(child, block_end)]
    return children


def _measured(children: Sequence[Child], limits: Limits) -> Iterator[list[Record]]:
    try:
        for child in children:
            if child.ready and time.monotonic() < limits.end:
                take_turn(child, min(limits.measure_s, max(1.0, limits.end + 5.0 - time.monotonic())))
            if child.lines:
                yield records(child)
    finally:
        for child in children:
            child.stop()


def run_compile_times(jobs: Sequence[Job], limits: Limits) -> Iterator[list[Record]]:
    """Compile times: a cold process with an empty cache, then a warm one with the same. Yields both's records.

    Every process of a block has imported torch and built its model before the first of them compiles; from then on
    they take turns.
    """
    with tempfile.TemporaryDirectory(prefix="fresh_runs_") as folder:
        _warm_file_cache(jobs[:1], Path(folder), limits)
        took = 0.0
        for first in range(0, len(jobs), limits.held // 2):
            if limits.end - time.monotonic() < took + limits.ready_s / 4:
                return
            starts: list[tuple[Job, Path, int | None]] = []
            for index, job in enumerate(jobs[first : first + limits.held // 2]):
                cache = Path(folder) / f"cache{first + index}"
                starts += [(replace(job, run=run), cache, None) for run in ("cold", "warm")]
            children = _prepared(starts, Path(folder), limits, limits.end)
            for cold, warm in zip(children[::2], children[1::2], strict=False):
                begin = time.monotonic()
                if begin + took > limits.end:
                    break
                yield _cold_then_warm(cold, warm, limits)
                took = max(took, time.monotonic() - begin)
            for child in children:
                child.stop()
            for _, cache, _ in starts:
                shutil.rmtree(cache, ignore_errors=True)


def _cold_then_warm(cold: Child, warm: Child, limits: Limits) -> list[Record]:
    found: list[Record] = []
    for child in (cold, warm):
        if child.ready:
            take_turn(child, limits.measure_s)
        found += records(child)
        if not found or found[-1]["status"] != "ok":
            break
    warm.stop()
    return found


def _warm_file_cache(jobs: Sequence[Job], folder: Path, limits: Limits) -> None:
    """Compiles once, unrecorded: the machine then holds the files of torch, Triton and the compilers in memory."""
    for job in jobs:
        for child in _prepared([(replace(job, run="cold"), folder / "first", None)], folder, limits, limits.end):
            if child.ready:
                take_turn(child, limits.measure_s)
            child.stop()


def key(record: Record) -> tuple[Any, ...]:
    """What identifies a record's case."""
    return record["model"], record["batch_size"], record["run"], record["mode"]


def interleaved(groups: Sequence[Sequence[Job]]) -> list[Job]:
    """The groups' jobs in turn, spread evenly: a run that is cut has done the same share of each."""
    spread = [
        ((index + 0.5) / len(group), number, job)
        for number, group in enumerate(groups)
        for index, job in enumerate(group)
    ]
    return [job for _, _, job in sorted(spread, key=lambda item: item[:2])]
