"""Start times of every kernel on host and device, by the queue simulation of each mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.timeline.cpu import SERIAL_MODES
from costmodel.timeline.gpu import default_queue, device_times, eager_queue, replay_queue
from costmodel.timeline.issue_trace import IssueTrace, SectionTrace
from costmodel.timeline.queue import Costs, Queue, call_times
from costmodel.timeline.timed_trace import TimedTrace


@dataclass(frozen=True, slots=True)
class Span:
    """A kernel in the timeline of one call, microseconds from the start of the call.

    Attributes:
        host_start_us, host_us: when the host begins to launch it, and for how long; 0 for a kernel that a CUDA graph
            replays, unless it is the first.
        device_start_us: when the device begins to run it.
    """

    host_start_us: float
    host_us: float
    device_start_us: float


def spans(mode: str, timed: TimedTrace, tables: Mapping[str, Costs]) -> tuple[Span, ...]:
    """Spans of a trace's kernels in a mode, in order.

    Args:
        mode: `eager`, `default` or `reduce-overhead`.
        timed: the trace that the mode runs.
        tables: cost tables of the device, as for `gpu.timings`.
    """
    if all(table in tables for table in SERIAL_MODES.values()):
        return _serial(timed)
    if mode == "eager":
        return tuple(_queued(eager_queue(timed, tables), tables["eager_wall"]["gap"]))
    gap = tables["default_wall"]["gap"]
    if mode == "default":
        return tuple(_queued(default_queue(timed, tables), gap))
    return _replayed(timed, tables, gap)


def _queued(queue: Queue, gap_us: float) -> list[Span]:
    """Spans of a queue's calls."""
    times = call_times(queue.host_us, queue.device_us, queue.prologue_us, gap_us, queue.waits, queue.parts)
    return [Span(begun, host, start) for host, (begun, start, _, _) in zip(queue.host_us, times, strict=True)]


def _replayed(timed: TimedTrace, tables: Mapping[str, Costs], gap_us: float) -> tuple[Span, ...]:
    """Spans in reduce-overhead mode: kernels of a CUDA graph follow each other without the host."""
    entries = _queued(replay_queue(timed, tables), gap_us)
    device = device_times(timed, tables["default_device"])
    found: list[Span] = []
    place = 0
    for section in _sections(timed.trace):
        is_entered = False
        for run, is_replayed in section.runs():  # in the order of `replay_queue`, whose entries these are
            if is_replayed or (section.is_compiled and not is_entered):
                place, is_entered = place + 1, True
            if not is_replayed:
                found += entries[place : place + len(run)]
                place += len(run)
                continue
            entry = entries[place - 1]
            begun, start = entry.host_start_us, entry.device_start_us
            for index in range(len(run)):
                host = (begun, entry.host_us) if index == 0 else (begun + entry.host_us, 0.0)
                found.append(Span(*host, start))
                start += device[len(found) - 1]
    return tuple(found)


def _sections(trace: IssueTrace) -> Sequence[SectionTrace]:
    return trace.sections or (SectionTrace(len(trace.kernels), trace.parameters),)


def _serial(timed: TimedTrace) -> tuple[Span, ...]:
    """Spans on a CPU, which runs each kernel as it is called."""
    found, now = [], 0.0
    for us in timed.device_us:
        found.append(Span(now, us, now))
        now += us
    return tuple(found)
