"""Whole models, eager and in torch.compile's modes: the truth that predictions are judged by.

    python -m collectors.whole_models.collect cases.json models.jsonl --device cuda --seconds 560

Two phases. Parallel processes compile every case, which fills Inductor's cache on disk; then this process alone
measures, so that nothing disturbs it. Records are appended to a JSON-lines file as they are made, and a case that is
already in that file is not measured again; what they were taken on is in a file beside it, `.env.json`. `session` says
when measuring began: records of one session have one host.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.processes.environment import differences, environment
from collectors.processes.host_noise import HostWatch, watch_host
from collectors.processes.process import die_with_parent, pinned
from collectors.processes.process_pool import compiling, default_processes, in_parallel
from collectors.whole_models.timing import MODES, build, measure_modes, modes_on, synchronize
from collectors.workloads.model_cases import WholeModelCase, case_key
from costmodel.errors import CostmodelError, DatasetError
from costmodel.files import write_whole
from costmodel.measurement.cpu_determinism import settle


@dataclass(frozen=True, slots=True)
class Settings:
    """How whole models are measured.

    Attributes:
        device: `cpu`, `cuda` or `cuda:N`.
        seconds: how long it may take.
        compile_share: which part of that may go into compiling in parallel.
        processes: how many compile at once.
        cases_at_once: how many unfinished cases are taken.
        no_device: leave device times out.
        modes: of torch.compile, which are measured.
        cold: of how many cases, the first ones, to take the compile time with an empty cache too.
    """

    device: str = "cuda"
    seconds: float = 560.0
    compile_share: float = 0.45
    processes: int = default_processes()
    cases_at_once: int = 60
    no_device: bool = False
    modes: tuple[str, ...] = tuple(MODES)
    cold: int = 0


def collect(cases: Sequence[WholeModelCase], out: Path, settings: Settings) -> None:
    """Measures the cases that `out` does not hold, until all are done or the time is up; prints a line for each.

    Raises:
        DatasetError: `out` was begun in another environment.
    """
    begin = time.monotonic()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / "inductor"))
    variables, name = pinned(settings.device)
    os.environ.update(variables)  # before CUDA is first used
    check_environment(out, environment(name))
    measured = done_keys(out)
    todo = [case for case in cases if case_key(case) not in measured][: settings.cases_at_once]
    seconds = _fill_cache(todo, name, variables, settings, begin + settings.seconds * settings.compile_share)
    print(f"{len(seconds)} of {len(todo)} cases compiled in {time.monotonic() - begin:.0f} s", flush=True)
    cold = {case_key(case) for case in cases[: settings.cold]}
    watch, session = watch_host(name), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M")
    for case in todo:
        key = case_key(case)
        if key in seconds and time.monotonic() < begin + settings.seconds:
            append(out, _measure(case, name, settings, seconds[key], key in cold, watch) | {"session": session})


def _measure(
    case: WholeModelCase, device: str, settings: Settings, contended_s: dict[str, float], cold: bool, watch: HostWatch
) -> dict[str, Any]:
    """The record of a case, or of what it raised."""
    import torch

    from costmodel.measurement.timers import release_memory

    torch._dynamo.reset()
    gc.collect()
    if device.startswith("cuda"):
        release_memory()
    try:
        record = measure_modes(case, device, with_device=not settings.no_device, modes=settings.modes, watch=watch)
        if cold:
            record["cold_compile_s"] = round(cold_compile(case, device), 2)
    except Exception as error:  # noqa: BLE001 - whatever a model raises is its result
        record = dict(case, error=f"{type(error).__name__}: {error}"[:300])
        print(f"failed: {case_key(case)}: {record['error']}", flush=True)
    else:
        record["contended_compile_s"] = contended_s
        middle = {mode: "/".join(f"{row[2] / 1e3:.3f}" for row in rows) for mode, rows in record["latency_us"].items()}
        print(f"{case_key(case)} {middle}", flush=True)
    return record


def warm(job: tuple[WholeModelCase, str, Collection[str]]) -> dict[str, float]:
    """Compiles one case in some modes in this process; seconds that each took, its first call included."""
    import torch

    from costmodel.execution.inductor_compile import share_cache

    case, device, modes = job
    share_cache()
    module, x = build(case, device)
    seconds = {}
    for mode, option in modes_on(device, modes).items():
        torch._dynamo.reset()
        start = time.perf_counter()
        with torch.no_grad():
            torch.compile(module, mode=option)(x)
        synchronize(device)
        seconds[mode] = round(time.perf_counter() - start, 2)
    del module, x
    torch._dynamo.reset()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    return seconds


def _fill_cache(
    todo: Sequence[WholeModelCase], device: str, variables: Mapping[str, str], settings: Settings, end: float
) -> dict[str, dict[str, float]]:
    """Compiles cases in parallel until `end`; contended seconds by case key and mode."""
    seconds: dict[str, dict[str, float]] = {}
    jobs = [(case, device, settings.modes) for case in todo]
    for (case, *_), outcome in in_parallel(warm, jobs, settings.processes, end, compiling(device, variables)):
        if isinstance(outcome, BaseException):
            print(f"compile failed: {case_key(case)}: {type(outcome).__name__}: {outcome}"[:200], flush=True)
        else:
            seconds[case_key(case)] = outcome
    return seconds


def cold_compile(case: WholeModelCase, device: str) -> float:
    """Seconds of the first compiled call with empty caches, this process alone on the machine."""
    import torch
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    module, x = build(case, device)
    with fresh_cache(), torch.no_grad():
        start = time.perf_counter()
        torch.compile(module)(x)
        synchronize(device)
        return time.perf_counter() - start


def check_environment(out: Path, here: Mapping[str, str]) -> None:
    """Makes sure that `out` holds numbers of this environment only; records it if the file is new.

    Raises:
        DatasetError: it does not, or nobody can tell.
    """
    path = out.with_suffix(".env.json")
    if not path.exists():
        if out.exists():
            raise DatasetError(f"{out}: nothing says what it was taken on ({path.name} is missing); use a new file")
        write_whole(path, json.dumps(dict(here), indent=2, sort_keys=True) + "\n")
        return
    try:
        begun = json.loads(path.read_text())
        changed = differences(begun, here)
    except (ValueError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path}: not an environment: {error}") from error
    if changed:
        raise DatasetError(f"{out}: begun in another environment: {changed}; use a new file")


def count_records(path: Path) -> Counter[str]:
    """How often each case stands in a file of records, by its key; a torn last line is passed over."""
    counts: Counter[str] = Counter()
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            counts[case_key(json.loads(line))] += 1
        except (ValueError, KeyError, TypeError):
            continue
    return counts


def done_keys(path: Path) -> set[str]:
    """Keys of the cases that a file of records holds."""
    return set(count_records(path))


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Adds one JSON line; a torn line that a killed process left is ended first."""
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(row).encode() + b"\n")


def main() -> None:
    """Measures the cases of a JSON file within a number of seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path, help="records, JSON lines")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=560)
    parser.add_argument("--compile-share", type=float, default=0.45)
    parser.add_argument("--processes", type=int, default=default_processes())
    parser.add_argument("--cases-at-once", type=int, default=60)
    parser.add_argument("--no-device", action="store_true", help="leave device times out")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=tuple(MODES), help="of torch.compile")
    parser.add_argument("--cold", type=int, default=0, help="cold compile times of so many cases, the first ones")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.parent is not None:
        die_with_parent(args.parent)
    settle(args.device)
    options = {key: value for key, value in vars(args).items() if key not in ("cases", "out", "parent")}
    options["modes"] = tuple(args.modes)
    try:
        collect(json.loads(args.cases.read_text()), args.out, Settings(**options))
    except (CostmodelError, OSError, ValueError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
