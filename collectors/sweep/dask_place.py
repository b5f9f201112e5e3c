"""Devices of a Dask cluster: hosts compile in parallel, then every device measures one case at a time."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from distributed import CancelledError, Client, Future, KilledWorker, wait

from collectors.processes.environment import differences
from collectors.sweep.dask_cluster import PLUGIN, MeasuringPlugin, compile_here, describe, measure
from collectors.sweep.place import CRASHED, Outcome
from collectors.sweep.settings import GRACE_SECONDS, SweepSettings
from collectors.workloads.cases import UnitCase
from costmodel.errors import DatasetError, MeasurementError, RequestError

LOST_SECONDS = 60.0
"""Time without any worker after which a sweep ends."""
AHEAD = 2
"""Cases given to a worker at a time, so that it never waits for the next one."""
COMPILED_AT_ONCE = 200
"""Cases given to a host to compile at a time."""
Result = TypeVar("Result")


@contextmanager
def dask_place(client: Client, settings: SweepSettings, _ledger_path: Path) -> Iterator[DaskPlace]:
    """Give every worker, also one that joins later, a measuring process; remove them when the block ends.

    Args:
        client: client of a cluster (`collectors.sweep.dask_cluster.cluster`).
        settings: device and deadline of a case.

    Raises:
        RequestError: two workers share one GPU.
        DatasetError: the workers' environments differ.
    """
    client.register_plugin(MeasuringPlugin(settings.device, settings.hang_seconds), name=PLUGIN)
    place = None
    try:
        workers = list(client.scheduler_info()["workers"])
        futures = [client.submit(describe, workers=[worker], pure=False) for worker in workers]
        abouts = dict(zip(workers, client.gather(futures), strict=True))
        place = DaskPlace(client, settings.device, common_environment(abouts, settings.device))
        yield place
    finally:
        if place is not None:
            place.cancel()
        if client.status == "running":
            client.unregister_worker_plugin(PLUGIN)


def common_environment(abouts: Mapping[str, Mapping[str, Any]], device: str) -> dict[str, str]:
    """Environment that all workers have in common, from the `about` of each by address.

    Raises:
        DatasetError: they differ.
        RequestError: two of them share one GPU.
    """
    (first, about), *others = abouts.items()
    environment: dict[str, str] = about["environment"]
    for worker, other in others:
        if changed := differences(environment, other["environment"]):
            raise DatasetError(f"{first} and {worker} cannot fill one ledger: {changed}; use one ledger for each")
    shared = [place for place, count in Counter(about["place"] for about in abouts.values()).items() if count > 1]
    if shared and device != "cpu":
        raise RequestError(f"two workers share the GPU {shared[0]}; start each with a CUDA_VISIBLE_DEVICES of its own")
    return environment


class DaskPlace:
    """Workers of a Dask cluster.

    Args:
        client: client of the cluster.
        device: `cpu` or `cuda`.
        environment: environment that the workers have in common.
    """

    def __init__(self, client: Client, device: str, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self._client = client
        self._device = device
        self._hosts: dict[str, str] = {}  # by key: the host whose cache holds the compiled case
        self._last_seen = time.monotonic()
        self._flying: dict[Future[Outcome], UnitCase] = {}

    def uncompiled(self, cases: Sequence[UnitCase]) -> list[UnitCase]:
        """All cases to compile; hosts that have compiled one before are quick about it."""
        return [case for case in cases if case.compiled]

    def compile(self, cases: Sequence[UnitCase], end: float) -> Iterator[UnitCase]:
        """Fills the caches of the hosts, each with its share of the cases."""
        hosts = sorted({worker["host"] for worker in self._client.scheduler_info()["workers"].values()})
        shares = {host: deque(cases[number :: len(hosts)]) for number, host in enumerate(hosts)}
        flying: dict[Future[list[str]], tuple[str, list[UnitCase]]] = {}
        while time.monotonic() < end and (flying or any(shares.values())):
            for host in set(hosts) - {host for host, _ in flying.values()}:
                if chunk := _take(shares[host], COMPILED_AT_ONCE):
                    options = {"workers": [host], "pure": False}
                    seconds = end - time.monotonic()
                    future = self._client.submit(compile_here, chunk, self._device, seconds, **options)
                    flying[future] = (host, chunk)
            for future in _done(flying, end + GRACE_SECONDS - time.monotonic()):
                host, chunk = flying.pop(future)
                try:
                    made = set(future.result())
                except KilledWorker:  # the cache keeps what it had compiled
                    shares[host].extend(chunk)
                    continue
                self._hosts |= dict.fromkeys(made, host)
                yield from (case for case in chunk if case.key in made)
        self._client.cancel(list(flying))

    def capacity(self) -> int:
        """A few cases for each worker.

        Raises:
            MeasurementError: there has been no worker for LOST_SECONDS.
        """
        workers = len(self._client.scheduler_info()["workers"])
        now = time.monotonic()
        self._last_seen = now if workers else self._last_seen
        if now - self._last_seen > LOST_SECONDS:
            raise MeasurementError(f"no worker for {LOST_SECONDS:g} s; measurements so far are kept")
        return AHEAD * workers

    def submit(self, case: UnitCase) -> None:
        """Queues a case, preferably at the host that compiled it."""
        host = self._hosts.get(case.key) if case.compiled else None
        where = {"workers": [host], "allow_other_workers": True} if host else {}
        self._flying[self._client.submit(measure, case, pure=False, **where)] = case

    def ended(self, seconds: float) -> list[tuple[UnitCase, Outcome]]:
        """Cases that ended; one whose worker was lost counts as crashed."""
        if not self._flying:
            time.sleep(seconds)
        return [(self._flying.pop(future), outcome(future)) for future in _done(self._flying, seconds)]

    def cancel(self) -> None:
        """Cancel the cases in flight."""
        self._client.cancel(list(self._flying))


def outcome(future: Future[Outcome]) -> Outcome:
    """Outcome of a case on a worker; `crashed` if the worker was lost."""
    try:
        return future.result()
    except KilledWorker:
        return Outcome(CRASHED, {"error": "its Dask worker was lost"})


def _take(cases: deque[UnitCase], count: int) -> list[UnitCase]:
    return [cases.popleft() for _ in range(min(len(cases), count))]


def _done(flying: Mapping[Future[Result], object], seconds: float) -> list[Future[Result]]:
    """Futures that end within some seconds, as soon as there are any.

    Raises:
        MeasurementError: the scheduler is gone, or has dropped them.
    """
    if not flying:
        return []
    try:
        return list(wait(list(flying), timeout=max(0.0, seconds), return_when="FIRST_COMPLETED").done)
    except TimeoutError:
        return []
    except CancelledError:
        raise MeasurementError("the Dask scheduler is gone; measurements so far are kept") from None
