"""Compile times of whole models: a cold process with an empty cache, then a warm one with the cache that it left.

Processes are prepared side by side and compile one at a time on each device. Beside several devices each has an equal
share of the cores, so that compilations that go on at the same time share neither a core nor a GPU.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from collectors.processes.environment import available_cores
from collectors.processes.process import pinned
from collectors.whole_models.case_process import Job
from collectors.whole_models.compilation import modes_on
from collectors.whole_models.held_process import HeldProcess
from collectors.whole_models.own_processes import OwnProcessSettings, Start, prepare
from collectors.whole_models.records import Record, record_key
from collectors.workloads.model_cases import WholeModelCase

USUAL_S = 20.0
"""Time reserved for a cold and a warm compilation before the end of a run."""
TOPOLOGY = Path("/sys/devices/system/cpu")
"""Directory in which Linux says which cores share a physical one."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A device and the cores beside it, on which one compilation goes on at a time.

    Attributes:
        device: name of the device in a process of the lane.
        variables: environment variables of its processes.
        cores: cores of its processes; empty for any.
    """

    device: str
    variables: Mapping[str, str]
    cores: tuple[int, ...] = ()


def lanes_of(devices: Sequence[str]) -> list[Lane]:
    """Lanes of some devices; a single one has all cores.

    Raises:
        RequestError: a device has an impossible name.
    """
    shares = shares_of_cores(len(devices)) if len(devices) > 1 else [()]
    return [Lane(name, variables, share) for share, (variables, name) in zip(shares, map(pinned, devices), strict=True)]


def shares_of_cores(count: int) -> list[tuple[int, ...]]:
    """Equal shares of the cores that this process may use; threads of one physical core are in one share."""
    cores = sorted(os.sched_getaffinity(0), key=lambda core: (_physical(core), core))
    size = max(1, len(cores) // count)
    return [tuple(cores[size * share : size * (share + 1)]) for share in range(count)]


def _physical(core: int) -> int:
    """First thread of a core's physical core; the core itself where the system does not say."""
    try:
        listed = (TOPOLOGY / f"cpu{core}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return core
    return int(listed.replace("-", ",").split(",")[0])


def compile_times(
    cases: Sequence[WholeModelCase],
    done: Mapping[str, int],
    devices: Sequence[str],
    modes: Sequence[str],
    settings: OwnProcessSettings,
    end: float,
) -> Iterator[Record]:
    """Measure compile times, each in a process with an empty cache and one after it.

    All processes of a block have imported torch and built their models before the first one compiles. Yields a record
    for each case and mode, with `cold` and `warm` details of compilation and the number of `cores`.

    Args:
        cases: cases to measure.
        done: number of records of each case and mode so far, by key.
        devices: devices of one kind, used side by side.
        modes: modes of torch.compile.
        settings: number of processes, deadlines; `held` processes are prepared for each device.
        end: monotonic seconds.
    """
    lanes = lanes_of(devices)
    wanted = [(case, mode) for case in cases for mode in modes_on(lanes[0].device, modes)]
    wanted = [(case, mode) for case, mode in wanted if not done.get(record_key({**case, "mode": mode}), 0)]
    size = len(lanes) * max(1, settings.held // 2)
    for first in range(0, len(wanted), size):
        if end - time.monotonic() < USUAL_S + settings.ready_s / 4:
            return
        with tempfile.TemporaryDirectory(prefix="compile_times_", ignore_cleanup_errors=True) as folder:
            yield from _measure_block(wanted[first : first + size], lanes, Path(folder), settings, end, first == 0)


def _measure_block(
    wanted: Sequence[tuple[WholeModelCase, str]],
    lanes: Sequence[Lane],
    folder: Path,
    settings: OwnProcessSettings,
    end: float,
    is_first: bool,
) -> Iterator[Record]:
    """Prepare all processes of some cases and modes, then compile in turn on each lane.

    Before the first block's records the operating system caches the files of torch, Triton and the compilers: each lane
    compiles once more, unrecorded.
    """
    starts: list[Start] = []
    for index, (case, mode) in enumerate([*wanted[: len(lanes)], *wanted] if is_first else wanted):
        lane, cache = lanes[index % len(lanes)], folder / f"cache{index}"
        job = Job(case, lane.device, (mode,), "compile", cores=lane.cores)
        starts += [(job, {**lane.variables, "TORCHINDUCTOR_CACHE_DIR": str(cache)})] * 2
    held = prepare(starts, folder, settings, end)
    pairs = list(zip(held[::2], held[1::2], strict=False))
    try:
        if is_first:
            list(_side_by_side(pairs[: len(lanes)], len(lanes), settings.measure_s, end))
            pairs = pairs[len(lanes) :]
        yield from _side_by_side(pairs, len(lanes), settings.measure_s, end)
    finally:
        for one in held:
            one.stop()
        for _, used in starts:
            shutil.rmtree(used["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)


def _side_by_side(
    pairs: Sequence[tuple[HeldProcess, HeldProcess]], lanes: int, seconds: float, end: float
) -> Iterator[Record]:
    """Records of cold and warm processes, one pair at a time on each lane, in the order in which they are made."""

    def turn(cold: HeldProcess, warm: HeldProcess) -> Record | None:
        stopped = any(not one.ready and one.record is None for one in (cold, warm))
        return None if stopped or time.monotonic() + USUAL_S > end else cold_then_warm(cold, warm, seconds)

    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(lanes)]
        turns: list[Future[Record | None]] = []
        stack.callback(lambda: [one.cancel() for one in turns])
        turns += [threads[index % lanes].submit(turn, *pair) for index, pair in enumerate(pairs)]
        for one in as_completed(turns):
            if (record := one.result()) is not None:
                yield record


def cold_then_warm(cold: HeldProcess, warm: HeldProcess, seconds: float) -> Record:
    """Record of a cold and a warm compilation, one after the other; or of the first failure."""
    mode = cold.job.modes[0]
    record: Record = {**cold.job.case, "mode": mode, "cores": len(cold.job.cores) or available_cores()}
    for name, one in (("cold", cold), ("warm", warm)):
        if one.ready:
            one.start_turn()
            one.finish_turn(seconds)
        found = one.record
        assert found is not None
        if "error" in found:
            warm.stop()
            return {**found, "mode": mode, "run": name}
        record[name] = {**found["compiled"][mode], "phases": found["phases"]}
        record["input_shape"] = found["input_shape"]
    if mode == "default":
        record["cold_compile_s"] = round(record["cold"]["wrap_s"] + record["cold"]["calls_s"][0], 2)
    return record
