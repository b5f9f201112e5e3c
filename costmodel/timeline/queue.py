"""The queue between a host that launches kernels and the device that runs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

Costs = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of a call in one mode, microseconds: wall time, host time to launch, device time."""

    latency_us: float
    host_us: float
    device_us: float

    def times(self, factor: float) -> Timing:
        """The times multiplied by a factor."""
        return Timing(self.latency_us * factor, self.host_us * factor, self.device_us * factor)


def call_times(
    host_us: Sequence[float],
    device_us: Sequence[float],
    prologue_us: float = 0.0,
    gap_us: float = 0.0,
    waits: Collection[int] = (),
    parts: Sequence[int] = (),
) -> Iterator[tuple[float, float, float, float]]:
    """Times of each call: its launch and its device work begin, the host goes on, the device has finished.

    Microseconds from the host's start. A call that launches nothing on the device begins there when the host goes on.

    Args:
        host_us: host time of each call, in order.
        device_us: device time of each call; 0 for one that launches nothing.
        prologue_us: host time before the first call.
        gap_us: idle time of the device between two kernels of a stream, beyond that of a graph's replay.
        waits: calls after which the host waits for the device, because Python reads the result.
        parts: equal launches that each call makes, one after another; one each if empty.
    """
    issued = finished = prologue_us
    for index, (host, device) in enumerate(zip(host_us, device_us, strict=True)):
        count = parts[index] if parts else 1
        begun, first = issued, issued + host / count
        start = issued = issued + host
        if device:  # it is busy from the first launch on, or ends one part after the last
            start = max(finished + gap_us, first)
            finished = max(start + device, issued + device / count)
        if index in waits:
            issued = max(issued, finished)
        yield begun, start, issued, finished


def queue_us(
    host_us: Sequence[float],
    device_us: Sequence[float],
    prologue_us: float = 0.0,
    gap_us: float = 0.0,
    waits: Collection[int] = (),
    parts: Sequence[int] = (),
) -> tuple[float, float]:
    """Times at which the host has launched everything and the device has finished; arguments as of `call_times`."""
    times = [(prologue_us, prologue_us)]
    times += [call[2:] for call in call_times(host_us, device_us, prologue_us, gap_us, waits, parts)]
    return times[-1]


@dataclass(frozen=True, slots=True)
class Queue:
    """Host and device times of the calls on a stream, microseconds.

    Attributes:
        prologue_us: host time before the first call.
        host_us: host time of each call.
        device_us: device time of each call.
        waits: calls after which the host waits for the device.
        parts: equal launches that each call makes; one each if empty.
    """

    prologue_us: float
    host_us: Sequence[float]
    device_us: Sequence[float]
    waits: frozenset[int] = frozenset()
    parts: Sequence[int] = ()

    @property
    def host_total_us(self) -> float:
        """Host time of the whole pass."""
        return self.prologue_us + sum(self.host_us)

    def scaled(self, host: float, device: float) -> Queue:
        """The queue with host and device times multiplied by factors."""
        calls, kernels = [us * host for us in self.host_us], [us * device for us in self.device_us]
        return Queue(self.prologue_us * host, calls, kernels, self.waits, self.parts)

    def latency_us(self, gap_us: float) -> float:
        """Wall time until the host has launched everything and the device has finished."""
        return max(queue_us(self.host_us, self.device_us, self.prologue_us, gap_us, self.waits, self.parts))

    def timing(self, wall: Costs) -> Timing:
        """Times of a synchronised call."""
        return Timing(self.latency_us(wall["gap"]), self.host_total_us, sum(self.device_us))
