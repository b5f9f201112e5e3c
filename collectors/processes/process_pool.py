"""Run jobs (compiling, capturing) in parallel processes, surviving a process that crashes or hangs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from collectors.processes.environment import available_cores
from collectors.processes.process import die_with_parent
from costmodel.errors import MeasurementError

Job = TypeVar("Job")
Result = TypeVar("Result")

HANG_SECONDS = 240.0
"""Deadline of a job; Inductor needs about half of it for the slowest whole model."""
MOST_CRASHES = 2
PATIENCE_SECONDS = 5.0
ONE_THREAD = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Environment variables of processes that together use all cores."""


def default_processes() -> int:
    """Number of cores of this process, less two for the system and this process; two on a machine of two cores."""
    cores = available_cores()
    return max(min(2, cores), cores - 2)


def compiling(device: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables of processes that fill Inductor's cache for a device, from those that pin a process to it.

    Inductor writes the number of threads into a CPU's loops, so there it must be the number that is measured with; idle
    threads then leave the cores to the other processes.
    """
    patience = {} if device.startswith("cuda") else {"OMP_WAIT_POLICY": "PASSIVE"}
    return {**ONE_THREAD, **variables, **patience}


def in_parallel(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    processes: int,
    end: float,
    environment: Mapping[str, str],
    hang_seconds: float = HANG_SECONDS,
) -> Iterator[tuple[Job, Result | BaseException]]:
    """Run a function on each job; yields a job with its result or exception when it is done, in any order.

    A job whose process dies is run once more, alone, so that it ends no other job; then it ends as a MeasurementError.
    Jobs that are not done at `end` are left out.

    Args:
        function: function that can be imported by name, as it runs in a new process.
        jobs: its arguments.
        processes: number of processes.
        end: monotonic seconds.
        environment: environment variables of the processes.
        hang_seconds: deadline of a job; a job that takes longer ends like one whose process died.
    """
    waiting = deque(enumerate(jobs))
    crashes: Counter[int] = Counter()
    while waiting and time.monotonic() < end:
        flying: dict[Future[Result], tuple[int, Job, float]] = {}
        with _pool(processes, environment, flying) as pool:
            while (waiting or flying) and time.monotonic() < end and not _hanging(flying, hang_seconds):
                try:
                    _launch(pool, function, waiting, flying, crashes, processes)
                    done, _ = wait(flying, timeout=1.0, return_when=FIRST_COMPLETED)
                    for future in done:
                        outcome = _outcome(future)
                        yield flying.pop(future)[1], outcome
                except BrokenProcessPool:
                    break
        for index, job, begun in flying.values():
            crashes[index] += MOST_CRASHES if time.monotonic() - begun > hang_seconds else 1
            if crashes[index] < MOST_CRASHES:
                waiting.appendleft((index, job))
            elif time.monotonic() < end:
                yield job, MeasurementError("its process died or hung")


def _launch(
    pool: ProcessPoolExecutor,
    function: Callable[[Job], Result],
    waiting: deque[tuple[int, Job]],
    flying: dict[Future[Result], tuple[int, Job, float]],
    crashes: Counter[int],
    processes: int,
) -> None:
    """Keep every process busy; a job that was running when a process died runs alone."""
    alone = any(crashes[index] for index, _, _ in flying.values())
    while waiting and len(flying) < processes and not alone:
        index, job = waiting[0]
        alone = bool(crashes[index])
        if alone and flying:
            return
        future = pool.submit(function, job)
        waiting.popleft()
        flying[future] = (index, job, time.monotonic())


def _outcome(future: Future[Result]) -> Result | BaseException:
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        raise error
    return future.result() if error is None else error


def _hanging(flying: Mapping[Future[Result], tuple[int, Job, float]], hang_seconds: float) -> bool:
    return any(time.monotonic() - begun > hang_seconds for _, _, begun in flying.values())


@contextmanager
def _pool(
    processes: int, environment: Mapping[str, str], flying: Mapping[Future[Result], object]
) -> Iterator[ProcessPoolExecutor]:
    """Pool of processes that end with the block; idle ones exit by themselves."""
    pool = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), initializer=_enter, initargs=(dict(environment), os.getpid())
    )
    try:
        yield pool
    finally:
        workers = list((pool._processes or {}).values())  # kill_workers() exists from Python 3.14 on
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.join(0 if flying else PATIENCE_SECONDS)
            worker.kill()


def _enter(environment: dict[str, str], parent: int) -> None:
    """Initialise a process of a pool; interruptions are left to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(parent)
    os.environ.update(environment)
