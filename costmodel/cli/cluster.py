"""`costmodel collect --scheduler`: what measures, a worker of this process or a Dask cluster."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.errors import RequestError

if TYPE_CHECKING:
    from collectors.cases import Case
    from collectors.supervise import Report
    from collectors.sweep import Settings

Sweep = Callable[["Sequence[Case]", Path, "Settings", "Report"], None]
"""Measures cases into a ledger."""


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
    from collectors.workloads import UNIT_WORKLOADS

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
        from collectors.sweep import sweep

        yield sweep
        return
    from collectors.crew import cluster
    from collectors.distribute import distribute

    with cluster(scheduler, device, workers) as client:
        yield partial(distribute, client)
