"""CUDA streams for the blocks of an acyclic graph, and the total time of blocks that run side by side.

The module depends on neither torch nor kernels: blocks are numbers, each with the blocks that it waits for.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from costmodel.ir.topological_order import in_order

MOST_STREAMS = 6
"""Most streams of a plan; more hardly ever have work at once."""
WAIT_US = 1.0
"""Time to wait for another stream inside a CUDA graph, beyond the ordinary gap between two kernels."""
IDLE = 1e-9
"""Remaining work, in microseconds, that counts as none: rounding."""


@dataclass(frozen=True, slots=True)
class Task:
    """Work for the device.

    Attributes:
        us: time alone, microseconds.
        share: share of the device that the task fills while it runs, 0 to 1.
        after: tasks that must end before it starts; numbers smaller than its own.
        stream: index of its stream; tasks of a stream run in order.
    """

    us: float
    share: float
    after: tuple[int, ...] = ()
    stream: int = 0


def assign_streams(after: Sequence[Sequence[int]], most: int = MOST_STREAMS) -> tuple[int, ...]:
    """Assign a stream to every block, such that chains stay on one stream and independent blocks do not wait.

    A block follows a producer that is the last of its stream, else a stream whose last block it depends on; else it
    starts a new stream while there are fewer than `most`.

    Args:
        after: producers of each block; numbers smaller than its own.
        most: largest number of streams.
    """
    ancestors = ancestor_sets(after)
    tails: list[int] = []
    streams: list[int] = []
    for block, before in enumerate(after):
        behind = [stream for stream, tail in enumerate(tails) if tail in before]
        ended = [stream for stream, tail in enumerate(tails) if ancestors[block] >> tail & 1]
        if behind:
            stream = max(behind, key=lambda stream: tails[stream])
        elif ended:
            stream = ended[0]
        elif len(tails) < most:
            stream = len(tails)
            tails.append(block)
        else:
            stream = min(range(most), key=lambda stream: tails[stream])
        tails[stream] = block
        streams.append(stream)
    return tuple(streams)


def merge_runs(
    after: Sequence[Sequence[int]], streams: Sequence[int], kinds: Sequence[Hashable | None]
) -> list[tuple[int, ...]]:
    """Merge consecutive blocks of one stream and one kind into runs, unless a run would then wait for itself.

    Args:
        after: producers of each block; numbers smaller than its own.
        streams: stream of each block.
        kinds: kind of each block; None for a block that stays alone.

    Returns:
        The runs, in an order in which they can run.
    """
    home: dict[int, int] = {}
    runs: list[list[int]] = []
    latest: dict[int, int] = {}
    for block, before in enumerate(after):
        run = latest.get(streams[block])
        kind = kinds[block]
        if (
            run is not None
            and kind is not None
            and kinds[runs[run][0]] == kind
            and not _leads(run, before, after, home, runs)
        ):
            runs[run].append(block)
        else:
            run = len(runs)
            runs.append([block])
        home[block] = latest[streams[block]] = run
    waits = [{home[block] for member in run for block in after[member]} - {number} for number, run in enumerate(runs)]
    return [tuple(runs[number]) for number in in_order(waits)]


def _leads(
    run: int,
    blocks: Sequence[int],
    after: Sequence[Sequence[int]],
    home: Mapping[int, int],
    runs: Sequence[Sequence[int]],
) -> bool:
    """Whether one of some blocks outside a run depends on that run, directly or through other runs."""
    pending = [home[block] for block in blocks if home[block] != run]
    seen = set(pending)
    while pending:
        found = pending.pop()
        for block in (block for member in runs[found] for block in after[member]):
            if home[block] == run:
                return True
            if home[block] not in seen:
                seen.add(home[block])
                pending.append(home[block])
    return False


def ancestor_sets(after: Sequence[Sequence[int]]) -> list[int]:
    """Direct and indirect producers of each block, as a bit set."""
    found: list[int] = []
    for before in after:
        bits = 0
        for block in before:
            bits |= found[block] | 1 << block
        found.append(bits)
    return found


def barriers(after: Sequence[Sequence[int]]) -> frozenset[int]:
    """Blocks that depend on all earlier blocks, and on which all later blocks depend: nothing runs beside them.

    Blocks are numbered in execution order. All earlier blocks lead to a block if each of them has a reader that is not
    later than it, for a path along such readers ends there; and likewise backwards.
    """
    count = len(after)
    first_reader = [count] * count
    for block, before in enumerate(after):
        for read in before:
            first_reader[read] = min(first_reader[read], block)
    last_read = [max(before, default=-1) for before in after]
    latest = list(accumulate(first_reader, max, initial=0))
    earliest = list(accumulate(reversed(last_read), min, initial=count))
    return frozenset(block for block in range(count) if latest[block] <= block <= earliest[count - 1 - block])


def makespan_us(tasks: Sequence[Task]) -> float:
    """Time at which the last task ends, microseconds, if running tasks share the device.

    Tasks that together fill at most the device run at full speed; else all slow down in proportion. A task starts once
    the tasks that it waits for, and the one before it on its stream, have ended.
    """
    waits = _waits(tasks)
    missing = [len(found) for found in waits]
    readers: list[list[int]] = [[] for _ in tasks]
    for number, found in enumerate(waits):
        for block in found:
            readers[block].append(number)
    left = [task.us + WAIT_US * crossing(tasks, number) for number, task in enumerate(tasks)]
    ready = [number for number, count in enumerate(missing) if count == 0]
    running: set[int] = set()
    now = 0.0
    while ready or running:
        running.update(ready)
        ready.clear()
        speed = 1.0 / max(1.0, sum(tasks[number].share for number in running))
        step = min(left[number] for number in running)
        now += step / speed
        for number in sorted(running):
            left[number] -= step
            if left[number] <= IDLE:
                running.remove(number)
                for reader in readers[number]:
                    missing[reader] -= 1
                    if missing[reader] == 0:
                        ready.append(reader)
    return now


def _waits(tasks: Sequence[Task]) -> list[set[int]]:
    """Tasks that each task waits for: its producers, and the one before it on its stream."""
    tails: dict[int, int] = {}
    found = []
    for number, task in enumerate(tasks):
        before = set(task.after)
        if task.stream in tails:
            before.add(tails[task.stream])
        tails[task.stream] = number
        found.append(before)
    return found


def crossing(tasks: Sequence[Task], number: int) -> bool:
    """Whether a task waits for a task on another stream."""
    return any(tasks[block].stream != tasks[number].stream for block in tasks[number].after)
