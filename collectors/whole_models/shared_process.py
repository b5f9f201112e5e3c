"""Whole models measured one after another in this process, after parallel processes have filled Inductor's cache."""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from collectors.processes.host_noise import HostWatch, watch_host
from collectors.processes.process_pool import compiling, default_processes, in_parallel
from collectors.whole_models.built_model import build
from collectors.whole_models.compilation import MODES, modes_on, synchronize
from collectors.whole_models.records import Record, failure
from collectors.whole_models.timing import measure_modes
from collectors.workloads.model_cases import WholeModelCase, case_key


@dataclass(frozen=True, slots=True)
class SharedProcessSettings:
    """Settings of a process that measures many cases.

    Attributes:
        compile_share: share of the time that compiling in parallel may take.
        processes: number of processes that compile at once.
        cases_at_once: largest number of cases to take.
        no_device: leave device times out.
        cold: number of cases, the first ones, whose compile time with empty caches is measured too.
    """

    compile_share: float = 0.45
    processes: int = default_processes()
    cases_at_once: int = 60
    no_device: bool = False
    cold: int = 0


def measure_here(
    cases: Sequence[WholeModelCase],
    done: Collection[str],
    device: str,
    modes: Collection[str],
    settings: SharedProcessSettings,
    seconds: float,
    variables: Mapping[str, str],
) -> Iterator[Record]:
    """Measure cases that have no record, until all are done or the time is up; yields their records.

    Args:
        cases: cases to measure.
        done: keys of cases that have a record.
        device: `cpu` or `cuda`.
        modes: modes of torch.compile.
        settings: shares and numbers.
        seconds: time budget.
        variables: environment variables that pin a process to the device.
    """
    begin = time.monotonic()
    todo = [case for case in cases if case_key(case) not in done][: settings.cases_at_once]
    compiled_s = _fill_cache(todo, device, variables, modes, settings, begin + seconds * settings.compile_share)
    print(f"{len(compiled_s)} of {len(todo)} cases compiled in {time.monotonic() - begin:.0f} s", flush=True)
    cold = {case_key(case) for case in cases[: settings.cold]}
    watch = watch_host(device)
    for case in todo:
        key = case_key(case)
        if key in compiled_s and time.monotonic() < begin + seconds:
            record = _measure(case, device, modes, settings, key in cold, watch)
            yield record if "error" in record else record | {"contended_compile_s": compiled_s[key]}


def _measure(
    case: WholeModelCase,
    device: str,
    modes: Collection[str],
    settings: SharedProcessSettings,
    cold: bool,
    watch: HostWatch,
) -> Record:
    """Record of a case, or of its error."""
    import torch

    from costmodel.measurement.timers import release_memory

    torch._dynamo.reset()
    gc.collect()
    if device.startswith("cuda"):
        release_memory()
    try:
        record = measure_modes(case, device, with_device=not settings.no_device, modes=modes, watch=watch)
        if cold:
            record["cold_compile_s"] = round(cold_compile(case, device), 2)
    except Exception as error:  # noqa: BLE001 - any error of a model is its result
        return failure(case, error)
    return record


def warm(job: tuple[WholeModelCase, str, Collection[str]]) -> dict[str, float]:
    """Compile one case in some modes in this process; returns seconds of each, first call included."""
    import torch

    from costmodel.execution.inductor_compile import share_cache

    case, device, modes = job
    share_cache()
    model = build(case, device)
    seconds = {}
    for mode in modes_on(device, modes):
        torch._dynamo.reset()
        start = time.perf_counter()
        with torch.no_grad():
            model.call(torch.compile(model.module, mode=MODES[mode]))()
        synchronize(device)
        seconds[mode] = round(time.perf_counter() - start, 2)
    del model
    torch._dynamo.reset()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    return seconds


def _fill_cache(
    todo: Sequence[WholeModelCase],
    device: str,
    variables: Mapping[str, str],
    modes: Collection[str],
    settings: SharedProcessSettings,
    end: float,
) -> dict[str, dict[str, float]]:
    """Compile cases in parallel until `end`; returns seconds by case key and mode, with other processes compiling."""
    seconds: dict[str, dict[str, float]] = {}
    jobs = [(case, device, tuple(modes)) for case in todo]
    for (case, *_), outcome in in_parallel(warm, jobs, settings.processes, end, compiling(device, variables)):
        if isinstance(outcome, BaseException):
            print(f"compile failed: {case_key(case)}: {type(outcome).__name__}: {outcome}"[:200], flush=True)
        else:
            seconds[case_key(case)] = outcome
    return seconds


def cold_compile(case: WholeModelCase, device: str) -> float:
    """Seconds of the first compiled call with empty caches, with no other process compiling."""
    import torch
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    model = build(case, device)
    with fresh_cache(), torch.no_grad():
        start = time.perf_counter()
        model.call(torch.compile(model.module))()
        synchronize(device)
        return time.perf_counter() - start
