"""The sweep on a Dask cluster: hosts compile in parallel, then every device measures one case at a time.

Only this process writes to the ledger. A worker that is lost loses the case that it was at, which is tried once more;
workers of another environment than the ledger's end the sweep before a number of theirs is written.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from distributed import CancelledError, Client, Future, KilledWorker, wait

from collectors.processes.environment import differences
from collectors.sweep.dask_cluster import PLUGIN, Station, compile_here, describe, measure
from collectors.sweep.ledger import MOST_ATTEMPTS, Ledger
from collectors.sweep.supervisor import GRACE_SECONDS, Progress, Report, locked
from collectors.sweep.sweep import Settings
from collectors.workloads.cases import Case
from costmodel.errors import DatasetError, MeasurementError, RequestError

LOOK_SECONDS = 1.0
LOST_SECONDS = 60.0
"""Without any worker for so long, a sweep ends."""
Outcome = tuple[str, dict[str, Any], Mapping[str, Any]]
Result = TypeVar("Result")
AHEAD = 2
"""Cases that a worker has been given at a time, so that it never waits for the next one."""
COMPILED_AT_ONCE = 200
"""Cases that a host is given to compile at a time."""


def distribute(client: Client, cases: Sequence[Case], ledger_path: Path, settings: Settings, report: Report) -> None:
    """Measures the cases that the ledger does not hold, until all are done or the time is up.

    Args:
        client: of a cluster (`collectors.sweep.dask_cluster.cluster`).
        cases: what to measure.
        ledger_path: where the results go.
        settings: as for a sweep; each host compiles on all its cores but two.
        report: told how far it is.

    Raises:
        RequestError: two workers share one GPU.
        DatasetError: the ledger is damaged, in use, or of another environment; or the workers' environments differ.
        MeasurementError: no worker can be brought to measure, or all are gone.
    """
    end = time.monotonic() + settings.seconds
    with locked(ledger_path), _stationed(client, settings) as environment, Ledger(ledger_path, environment) as ledger:
        finished = ledger.finished()
        todo = [case for case in cases if (case.key, case.unit) not in finished][: settings.limit]
        compiled = _compile(client, todo, settings, report)
        ready = [case for case in todo if case.runner == "aten" or case.key in compiled]
        _Sweep(client, ledger, compiled, len(ready), end, report).measure(ready)


@contextmanager
def _stationed(client: Client, settings: Settings) -> Iterator[Mapping[str, str]]:
    """Gives every worker, also one that joins later, what it measures with; the environment that they agree in."""
    client.register_plugin(Station(settings.device, settings.hang_seconds), name=PLUGIN)
    try:
        workers = list(client.scheduler_info()["workers"])
        futures = [client.submit(describe, workers=[worker], pure=False) for worker in workers]
        yield _agreed(dict(zip(workers, client.gather(futures), strict=True)), settings.device)
    finally:
        if client.status == "running":
            client.unregister_worker_plugin(PLUGIN)


def _agreed(abouts: Mapping[str, Mapping[str, Any]], device: str) -> dict[str, str]:
    """The environment of all workers, by what each says of itself.

    Raises:
        DatasetError: they differ.
        RequestError: two of them share one GPU.
    """
    (first, about), *others = abouts.items()
    environment: dict[str, str] = about["environment"]
    for worker, other in others:
        if apart := differences(environment, other["environment"]):
            raise DatasetError(f"{first} and {worker} cannot fill one ledger: {apart}; give them one each")
    shared = [place for place, count in Counter(about["place"] for about in abouts.values()).items() if count > 1]
    if shared and device != "cpu":
        raise RequestError(f"two workers share the GPU {shared[0]}; start each with a CUDA_VISIBLE_DEVICES of its own")
    return environment


def _compile(client: Client, todo: Sequence[Case], settings: Settings, report: Report) -> dict[str, str]:
    """Fills the caches of the hosts, each with its share of the cases; the host of every key that is done.

    What failed counts as done: where it is measured it fails again, and is recorded.
    """
    begin = time.monotonic()
    end = begin + settings.seconds * settings.compile_share
    hosts = sorted({worker["host"] for worker in client.scheduler_info()["workers"].values()})
    cold = [case for case in todo if case.compiled]
    shares = {host: deque(cold[number :: len(hosts)]) for number, host in enumerate(hosts)}
    compiled: dict[str, str] = {}
    flying: dict[Future[list[str]], tuple[str, list[Case]]] = {}
    while time.monotonic() < end and (flying or any(shares.values())):
        for host in set(hosts) - {host for host, _ in flying.values()}:
            share = shares[host]
            chunk = [share.popleft() for _ in range(min(len(share), COMPILED_AT_ONCE))]
            seconds = end - time.monotonic()
            if chunk:
                future = client.submit(compile_here, chunk, settings.device, seconds, workers=[host], pure=False)
                flying[future] = (host, chunk)
        for future in _done(flying, end + GRACE_SECONDS - time.monotonic()):
            host, chunk = flying.pop(future)
            try:
                compiled |= dict.fromkeys(future.result(), host)
            except KilledWorker:  # the caches keep what it had done
                shares[host].extend(chunk)
            report(Progress("compiling", len(compiled), len(cold), time.monotonic() - begin, len(compiled)))
    client.cancel(list(flying))
    return compiled


def _done(flying: Mapping[Future[Result], object], seconds: float) -> list[Future[Result]]:
    """Those that end within some seconds, as soon as there are any.

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
        raise MeasurementError("the Dask scheduler is gone; what was measured is kept") from None


@dataclass
class _Sweep:
    """Hands cases to workers and writes down what comes back."""

    client: Client
    ledger: Ledger
    hosts: Mapping[str, str]
    total: int
    end: float
    report: Report
    done: int = 0
    units: set[str] = field(default_factory=set)
    flying: dict[Future[Outcome], Case] = field(default_factory=dict)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)
    suspects: deque[Case] = field(default_factory=deque)

    def measure(self, cases: Sequence[Case]) -> None:
        """Until all are done, or the time is up."""
        begin = last_seen = time.monotonic()
        waiting = deque(cases)
        try:
            while waiting or self.suspects or self.flying:
                now = time.monotonic()
                workers = len(self.client.scheduler_info()["workers"])
                last_seen = now if workers else last_seen
                if now - last_seen > LOST_SECONDS:
                    raise MeasurementError(f"no worker for {LOST_SECONDS:g} s; what was measured is kept")
                if now > self.end:
                    waiting.clear()
                    self.suspects.clear()
                if now > self.end + GRACE_SECONDS:
                    return
                self._launch(waiting, workers)
                for future in _done(self.flying, LOOK_SECONDS):
                    self._note(future, self.flying.pop(future))
                self.report(Progress("measuring", self.done, self.total, time.monotonic() - begin, len(self.units)))
        finally:
            self.client.cancel(list(self.flying))

    def _launch(self, waiting: deque[Case], workers: int) -> None:
        """Keeps every worker busy; a case that was there when a worker was lost is tried again alone, at the end."""
        while waiting and len(self.flying) < AHEAD * workers:
            self._submit(waiting.popleft())
        if self.suspects and not self.flying:
            self._submit(self.suspects.popleft())

    def _submit(self, case: Case) -> None:
        """Rather to the host that has compiled it; to another one if that is gone."""
        host = self.hosts.get(case.key) if case.compiled else None
        where = {"workers": [host], "allow_other_workers": True} if host else {}
        self.flying[self.client.submit(measure, case, pure=False, **where)] = case

    def _note(self, future: Future[Outcome], case: Case) -> None:
        """Writes down what came of a case, or keeps it for another attempt."""
        try:
            status, record, about = future.result()
        except KilledWorker:
            mark = (case.key, case.unit)
            self.lost[mark] += 1
            if self.lost[mark] < MOST_ATTEMPTS:
                self.suspects.append(case)
                return
            status, record, about = "crashed", {"error": "its Dask worker was lost", "attempt": MOST_ATTEMPTS}, {}
        if about and (apart := differences(self.ledger.environment, about["environment"])):
            raise DatasetError(f"a worker of another environment has joined ({about['place']}): {apart}")
        self.ledger.finish(case, status, {**record, "place": about.get("place")})
        self.done += 1
        self.units.add(case.unit or case.key)
