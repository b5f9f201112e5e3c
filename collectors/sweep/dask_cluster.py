"""Workers of a Dask cluster: the functions that run in each, and a cluster on this machine with one worker a device.

A worker starts a measuring process (`collectors.sweep.measuring_process`), so that a case that crashes or hangs ends
that process only, and torch is first imported where the device has been selected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, cast

import dask
from distributed import Client, Nanny, Scheduler, Security, SpecCluster, Worker, WorkerPlugin, get_worker, rpc

from collectors.processes.process import describe_exit, last_words, pinned, running
from collectors.sweep.measuring_process import MeasuringProcess
from collectors.sweep.place import Outcome
from collectors.sweep.settings import GRACE_SECONDS
from collectors.workloads.cases import UnitCase, write_cases
from costmodel.errors import MeasurementError, RequestError

LOCAL = "local"
"""Stands in place of a scheduler's address for a cluster on this machine that lasts as long as the sweep."""
CONNECT_SECONDS = 20.0
PLUGIN = "costmodel-measuring"
_CONFIGURATION: dict[str, object] = {
    "distributed.nanny.pre-spawn-environ": {},  # the default leaves torch one thread
    "distributed.deploy.lost-worker-timeout": "3 minutes",  # a killed worker comes back late on a busy machine
    "distributed.diagnostics.nvml": False,  # no queries of the GPU while it is measured
    "distributed.worker.profile.enabled": False,
}
"""Configuration of a local cluster, where it differs from Dask's defaults."""


class MeasuringPlugin(WorkerPlugin):
    """Measuring process of a worker, for one case at a time however many threads the worker has."""

    def __init__(self, device: str, hang_seconds: float) -> None:
        self._device = device
        self._hang_seconds = hang_seconds

    def setup(self, worker: Worker) -> None:
        """In the worker, when the sweep begins or the worker joins it."""
        log = Path(worker.local_directory) / "measuring_process.log"
        self.process = MeasuringProcess(self._device, self._hang_seconds, log)
        self.lock = Lock()

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - Dask passes it
        """In the worker, when the sweep or the worker ends."""
        self.process.close()


class IgnoreInterrupts(WorkerPlugin):
    """Leaves an interruption from the keyboard to the client, in a local worker."""

    def setup(self, worker: Worker) -> None:  # noqa: ARG002 - Dask passes it
        """In the worker, as it starts."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _plugin() -> MeasuringPlugin:
    return cast("MeasuringPlugin", get_worker().plugins[PLUGIN])


def describe() -> Mapping[str, Any]:
    """In a worker: `environment` and `place` of its measuring process."""
    plugin = _plugin()
    with plugin.lock:
        return plugin.process.about()


def measure(case: UnitCase) -> Outcome:
    """In a worker: measure a case."""
    plugin = _plugin()
    with plugin.lock:
        return plugin.process.measure(case)


def compile_here(cases: Sequence[UnitCase], device: str, seconds: float) -> list[str]:
    """In a worker: compile cases on all cores of its host; returns the keys of those that are done.

    Raises:
        MeasurementError: the compiling processes end with an error.
    """
    with TemporaryDirectory(dir=get_worker().local_directory) as name:
        place = Path(name)
        write_cases(place / "cases.jsonl", cases)
        (place / "done.txt").touch()
        command = [
            sys.executable,
            "-m",
            "collectors.sweep.precompile",
            str(place / "cases.jsonl"),
            str(place / "done.txt"),
        ]
        command += ["--device", device, "--seconds", str(seconds), "--parent", str(os.getpid())]
        end = time.monotonic() + seconds + GRACE_SECONDS
        with running(command, {}, place / "log") as process:
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
        if process.returncode > 0:
            raise MeasurementError(f"compiling: {describe_exit(process.returncode)}: {last_words(place / 'log')}")
        return (place / "done.txt").read_text().split()


@contextmanager
def cluster(scheduler: str, device: str, workers: int | None) -> Iterator[Client]:
    """Client of a scheduler that has workers.

    Args:
        scheduler: address, or LOCAL.
        device: `cpu` or `cuda`.
        workers: number of workers of a local cluster; by default one per GPU, or one for a CPU.

    Raises:
        RequestError: there are fewer GPUs than workers, or nothing answers at the address.
        MeasurementError: the scheduler has no workers.
    """
    if scheduler != LOCAL:
        with _connected(scheduler) as client:
            yield client
        return
    variables = _devices(device, workers)
    nothing = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    options = {"nthreads": 1, "memory_limit": 0, "silence_logs": logging.CRITICAL, "host": "127.0.0.1", **nothing}
    options["plugins"] = [IgnoreInterrupts()]
    with (
        dask.config.set(_CONFIGURATION),
        SpecCluster(
            workers={
                number: {"cls": Nanny, "options": {**options, "env": environment}}
                for number, environment in enumerate(variables)
            },
            scheduler={
                "cls": Scheduler,
                "options": {"host": "127.0.0.1", "port": 0, "allowed_failures": 0, **nothing},
            },
            silence_logs=logging.CRITICAL,
        ) as local,
        Client(local) as client,
    ):
        yield client


def _devices(device: str, workers: int | None) -> list[dict[str, str]]:
    """Environment variables that pin each worker of a local cluster to its device."""
    if workers is not None and workers < 1:
        raise RequestError(f"impossible number of workers {workers}; give at least 1")
    if device == "cpu":
        return [{} for _ in range(workers or 1)]
    import torch

    count = torch.cuda.device_count()
    if (workers or 1) > count:
        raise RequestError(f"{workers or 1} workers need as many GPUs, and there are {count}")
    return [pinned(f"cuda:{number}")[0] for number in range(workers or count)]


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    """Client of the scheduler at an address, created only once the address is known to answer.

    A client that fails to connect stays unclosed. It closes itself when it is garbage-collected, and then waits for a
    lock that the same thread may hold to start another client's event loop: a deadlock.
    """
    try:
        kind = asyncio.run(_kind_of_server(address))
    except (OSError, TypeError, ValueError) as error:  # TypeError: tls without certificates
        raise RequestError(f"no Dask scheduler answers at {address!r}: {type(error).__name__}") from error
    if kind != "Scheduler":
        raise RequestError(f"at {address!r} is a Dask {kind}; give the address of its scheduler")
    with Client(address, timeout=CONNECT_SECONDS) as client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError:
            raise MeasurementError(
                f"the scheduler at {address} has no workers; start `dask worker {address}`"
            ) from None
        yield client


async def _kind_of_server(address: str) -> str:
    """`Scheduler`, `Worker` or `Nanny`."""
    security = Security().get_connection_args("client")  # from Dask's configuration, as for a client
    async with asyncio.timeout(CONNECT_SECONDS), rpc(address, connection_args=security) as server:
        return cast("str", (await server.identity())["type"])
