"""Measuring on a host that others use too: what was timed while it was disturbed is timed again.

On shared machines a launch takes half as long again for seconds at a time, and so does all that a host decides. A short
probe before and after every measurement tells; what is left disturbed after several tries is named, so that it can be
kept out of training and of scores.
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
"""A probe that is slower than usual by more tells of a disturbance; those of a quiet host are within 5 %."""
USUAL = 0.25
"""The quantile of the latest probes that is taken as usual: disturbances are slow, and more rare than not."""
LATEST = 200
"""So many probes tell what is usual; a host's speed drifts, too."""
TRIES = 4
"""How often a measurement is taken at most."""
PATIENCE_S = 2.0
"""How long a disturbed host is waited for before a try."""
PAUSE_S = 0.1
"""Between two probes of a host that is waited for, or looked at."""
LOOK_S = 2.0
"""How long a host is looked at before anything is measured."""


@dataclass
class HostWatch:
    """Probes a host again and again, and knows what is usual there.

    Attributes:
        probe: takes a moment to say how long the host needs for a launch, microseconds.
        sleep, clock: as in `time`.
        seen: what the latest probes said.
    """

    probe: Callable[[], float]
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    seen: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))

    @property
    def usual_us(self) -> float:
        """What a launch usually takes here; a probe is taken if there was none."""
        if not self.seen:
            self.slowness()
        return sorted(self.seen)[int(USUAL * (len(self.seen) - 1))]

    def look(self, seconds: float) -> float:
        """What a launch usually takes, microseconds, after probing for so long."""
        end = self.clock() + seconds
        while self.clock() < end:
            self.slowness()
            self.sleep(PAUSE_S)
        return self.usual_us

    def slowness(self) -> float:
        """The host now, against what is usual: 1.3 if a launch takes 30 % longer."""
        self.seen.append(self.probe())
        return self.seen[-1] / self.usual_us

    def measure(self, take: Callable[[], Found]) -> tuple[Found, bool]:
        """What was taken while the host was quiet, or else the least disturbed try; and whether it was quiet."""
        slowness, found = min(self._tries(take), key=lambda one: one[0])
        return found, slowness <= DISTURBED

    def _tries(self, take: Callable[[], Found]) -> Iterator[tuple[float, Found]]:
        """Tries until one is undisturbed: how slow the host was, at its start or its end, and what was found."""
        for _ in range(TRIES):
            self._await_quiet()
            before = self.slowness()
            found = take()
            slowness = max(before, self.slowness())
            yield slowness, found
            if slowness <= DISTURBED:
                return

    def _await_quiet(self) -> None:
        """Returns when the host is quiet, or patience ends; what is seen meanwhile is not what is usual."""
        end = self.clock() + PATIENCE_S
        while self.seen and self.probe() > DISTURBED * self.usual_us and self.clock() < end:
            self.sleep(PAUSE_S)


def watch_host(device: str) -> HostWatch:
    """A watch that knows the host that feeds a GPU. A CPU is its own, and taken to be quiet: rounds tell of it."""
    from costmodel.measurement.timers import host_probe

    if not device.startswith("cuda"):
        return HostWatch(lambda: 1.0)
    watch = HostWatch(partial(host_probe, device, seconds=0.0))
    host_probe(device)  # a new process issues slower at first
    watch.look(LOOK_S)
    return watch
