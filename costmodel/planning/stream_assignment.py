"""Branches side by side: which stream each unit of an acyclic graph goes on, and how long the whole then takes.

Knows neither torch nor kernels: units are numbers, with the units that each has to wait for.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from costmodel.ir.topological_order import in_order

MOST_LANES = 6
"""Streams that a plan forks at most; more hardly ever have work at once."""
WAIT_US = 1.0
"""What waiting for another stream costs inside a CUDA graph, beyond the ordinary gap between two kernels."""
IDLE = 1e-9
"""Work that is left, in microseconds, once a unit has ended: rounding."""


@dataclass(frozen=True, slots=True)
class Task:
    """A unit as the device sees it.

    Attributes:
        us: time alone, microseconds.
        share: how much of the device it fills while it runs, 0 to 1.
        after: units that must have ended before it starts; numbers smaller than its own.
        lane: the stream that it is issued to, in the order of the tasks.
    """

    us: float
    share: float
    after: tuple[int, ...] = ()
    lane: int = 0


def assign_lanes(after: Sequence[Sequence[int]], most: int = MOST_LANES) -> tuple[int, ...]:
    """A lane for every unit, so that no two wait for each other without need; chains stay on one lane.

    A unit goes behind one that it reads if that is the last of its lane, else on a lane that has ended for it, else on
    a new one while there are fewer than `most`.

    Args:
        after: for every unit, those that it reads; numbers smaller than its own.
        most: lanes.
    """
    ancestors = ancestor_sets(after)
    tails: list[int] = []
    lanes: list[int] = []
    for unit, before in enumerate(after):
        behind = [lane for lane, tail in enumerate(tails) if tail in before]
        ended = [lane for lane, tail in enumerate(tails) if ancestors[unit] >> tail & 1]
        if behind:
            lane = max(behind, key=lambda lane: tails[lane])
        elif ended:
            lane = ended[0]
        elif len(tails) < most:
            lane = len(tails)
            tails.append(unit)
        else:
            lane = min(range(most), key=lambda lane: tails[lane])
        tails[lane] = unit
        lanes.append(lane)
    return tuple(lanes)


def merge_runs(
    after: Sequence[Sequence[int]], lanes: Sequence[int], kinds: Sequence[Hashable | None]
) -> list[tuple[int, ...]]:
    """Units in a row on their lane and of one kind as one run, where that makes no run wait for itself.

    Args:
        after: for every unit, those that it reads; numbers smaller than its own.
        lanes: of the units.
        kinds: of the units; None for one that stands alone.

    Returns:
        The runs, in an order in which they can run.
    """
    home: dict[int, int] = {}
    runs: list[list[int]] = []
    latest: dict[int, int] = {}
    for unit, before in enumerate(after):
        run = latest.get(lanes[unit])
        kind = kinds[unit]
        if (
            run is not None
            and kind is not None
            and kinds[runs[run][0]] == kind
            and not _leads(run, before, after, home, runs)
        ):
            runs[run].append(unit)
        else:
            run = len(runs)
            runs.append([unit])
        home[unit] = latest[lanes[unit]] = run
    waits = [{home[unit] for member in run for unit in after[member]} - {number} for number, run in enumerate(runs)]
    return [tuple(runs[number]) for number in in_order(waits)]


def _leads(
    run: int,
    units: Sequence[int],
    after: Sequence[Sequence[int]],
    home: Mapping[int, int],
    runs: Sequence[Sequence[int]],
) -> bool:
    """Whether any of some units outside a run depends on that run, its members and all they are merged with."""
    pending = [home[unit] for unit in units if home[unit] != run]
    seen = set(pending)
    while pending:
        found = pending.pop()
        for unit in (unit for member in runs[found] for unit in after[member]):
            if home[unit] == run:
                return True
            if home[unit] not in seen:
                seen.add(home[unit])
                pending.append(home[unit])
    return False


def ancestor_sets(after: Sequence[Sequence[int]]) -> list[int]:
    """For every unit, those that it depends on, near and far, as the bits of a number."""
    found: list[int] = []
    for before in after:
        bits = 0
        for unit in before:
            bits |= found[unit] | 1 << unit
        found.append(bits)
    return found


def barriers(after: Sequence[Sequence[int]]) -> frozenset[int]:
    """Units that depend on all before them and that all behind them depend on: nothing runs beside them.

    Units are numbered in an order in which they can run. So all before a unit lead to it if each of them is read by one
    that is no later than the unit, for a path along such readers ends there; and likewise backwards.
    """
    count = len(after)
    first_reader = [count] * count
    for unit, before in enumerate(after):
        for read in before:
            first_reader[read] = min(first_reader[read], unit)
    last_read = [max(before, default=-1) for before in after]
    latest = list(accumulate(first_reader, max, initial=0))
    earliest = list(accumulate(reversed(last_read), min, initial=count))
    return frozenset(unit for unit in range(count) if latest[unit] <= unit <= earliest[count - 1 - unit])


def makespan_us(tasks: Sequence[Task]) -> float:
    """When the last task ends, microseconds, on a device whose running tasks share it.

    Tasks that together fill no more than the device run at full speed; else each is slowed by how much they overfill
    it. A task starts once those it waits for and the one before it on its lane have ended.
    """
    waits = _waits(tasks)
    missing = [len(found) for found in waits]
    readers: list[list[int]] = [[] for _ in tasks]
    for number, found in enumerate(waits):
        for unit in found:
            readers[unit].append(number)
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
    """What each task waits for: what it reads, and the one before it on its lane."""
    tails: dict[int, int] = {}
    found = []
    for number, task in enumerate(tasks):
        before = set(task.after)
        if task.lane in tails:
            before.add(tails[task.lane])
        tails[task.lane] = number
        found.append(before)
    return found


def crossing(tasks: Sequence[Task], number: int) -> bool:
    """Whether a task waits for one on another lane."""
    return any(tasks[unit].lane != tasks[number].lane for unit in tasks[number].after)
