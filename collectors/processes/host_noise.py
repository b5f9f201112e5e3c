"""Measure on a host that other processes use too: repeat what was timed while they slowed it down.

On shared machines a launch takes half as long again for seconds at a time, and so does everything that is host-bound. A
short host probe before and after every measurement detects that. A measurement that stays disturbed after several tries
is marked, so that training and scores can leave it out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

Found = TypeVar("Found")
DISTURBED = 1.15
"""Ratio of a probe to the usual one above which the host is disturbed; probes of a quiet host are within 5 %."""
USUAL = 0.25
"""Quantile of the latest probes that counts as usual: disturbed probes are slower, and rare."""
LATEST = 200
"""Number of probes that the usual one is taken from; fewer than all, as a host's speed drifts."""
TRIES = 4
"""Largest number of tries of a measurement."""
PATIENCE_S = 2.0
"""Longest wait for a quiet host before a try."""
PAUSE_S = 0.1
"""Pause between two probes."""
LOOK_S = 2.0
"""Time for which a host is probed before anything is measured."""


@dataclass
class HostWatch:
    """Watch of a host by repeated probes.

    Attributes:
        probe: measures launch time, microseconds, within a moment.
        sleep, clock: as in `time`.
        seen: launch times of the latest probes.
    """

    probe: Callable[[], float]
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    seen: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))

    @property
    def usual_us(self) -> float:
        """Usual launch time; probes once if there was no probe yet."""
        if not self.seen:
            self.slowness()
        return sorted(self.seen)[int(USUAL * (len(self.seen) - 1))]

    def look(self, seconds: float) -> float:
        """Probe for some seconds; returns the usual launch time, microseconds."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.slowness()
            self.sleep(PAUSE_S)
        return self.usual_us

    def slowness(self) -> float:
        """Launch time now over the usual one: 1.3 if a launch takes 30 % longer."""
        self.seen.append(self.probe())
        return self.seen[-1] / self.usual_us

    def measure(self, take: Callable[[], Found]) -> tuple[Found, bool]:
        """Measurement on a quiet host, or else the least disturbed try; and whether the host was quiet."""
        slowness, found = min(self._tries(take), key=lambda one: one[0])
        return found, slowness <= DISTURBED

    def _tries(self, take: Callable[[], Found]) -> Iterator[tuple[float, Found]]:
        """Tries until one is undisturbed: slowness of the host at the start or end, and the measurement."""
        for _ in range(TRIES):
            self._await_quiet()
            before = self.slowness()
            found = take()
            slowness = max(before, self.slowness())
            yield slowness, found
            if slowness <= DISTURBED:
                return

    def _await_quiet(self) -> None:
        """Wait until the host is quiet, or PATIENCE_S have passed; probes meanwhile do not count as usual."""
        end = self.clock() + PATIENCE_S
        while self.seen and self.probe() > DISTURBED * self.usual_us and self.clock() < end:
            self.sleep(PAUSE_S)


def watch_host(device: str) -> HostWatch:
    """Watch of a GPU's host, already probed; for a CPU, where scatter shows noise, one that reports a quiet host."""
    from costmodel.measurement.timers import host_probe

    if not device.startswith("cuda"):
        return HostWatch(lambda: 1.0)
    watch = HostWatch(partial(host_probe, device, seconds=0.0))
    host_probe(device)  # a new process launches slower at first
    watch.look(LOOK_S)
    return watch
