"""Measuring on a disturbed host, with a simulated host, clock and measurement."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from collectors.processes.host_noise import DISTURBED, LATEST, PATIENCE_S, TRIES, HostWatch, watch_host

SLOW, QUICK = 10.0, 6.0


class Host:
    """Host whose launch time at a time is `us`; the clock advances by sleeping and measuring."""

    def __init__(self, busy: Iterable[tuple[float, float]] = ()) -> None:
        self.busy, self.now = tuple(busy), 0.0
        self.watch = HostWatch(self.us, self.sleep, lambda: self.now)
        for _ in range(8):  # what is usual is known
            self.watch.seen.append(QUICK)

    def us(self) -> float:
        return SLOW if any(start <= self.now < end for start, end in self.busy) else QUICK

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def take(self) -> float:
        """A measurement of a quarter of a second that says when it began."""
        begin = self.now
        self.now += 0.25
        return begin


def test_a_quiet_host_is_measured_at_once():
    assert Host().watch.measure(Host().take) == (0.0, True)


def test_a_busy_host_is_waited_for():
    host = Host(busy=[(0.0, 0.95)])
    found, quiet = host.watch.measure(host.take)
    assert quiet
    assert found == pytest.approx(1.0)  # probed every 0.1 s


def test_what_was_disturbed_at_its_end_is_taken_again():
    host = Host(busy=[(0.2, 0.7)])
    found, quiet = host.watch.measure(host.take)
    assert quiet
    assert found >= 0.7


def test_a_host_that_stays_busy_is_measured_all_the_same_and_said_to_be():
    host = Host(busy=[(0.0, 1e9)])
    found, quiet = host.watch.measure(host.take)
    assert not quiet
    assert found == pytest.approx(PATIENCE_S, abs=0.2)  # the first try: none is better
    assert host.now == pytest.approx(TRIES * (PATIENCE_S + 0.25), abs=1.0)  # and it ends


def test_of_disturbed_tries_the_least_disturbed_is_kept():
    takes, seconds = iter("abcd"), itertools.count(step=9)
    probes = (us for us in (9.0, 8.0, 7.5, 8.5) for _ in range(3))  # waiting, before, after
    watch = HostWatch(probes.__next__, lambda _: None, seconds.__next__)
    watch.seen.extend([QUICK] * 50)
    assert watch.measure(takes.__next__) == ("c", False)


def test_what_is_usual_follows_a_host_that_becomes_slower_for_good():
    host = Host()
    host.busy = [(0.0, 1e9)]
    assert host.watch.slowness() == pytest.approx(SLOW / QUICK)
    for _ in range(LATEST):
        slowness = host.watch.slowness()
    assert slowness == 1.0
    assert host.watch.usual_us == SLOW


def test_a_host_is_looked_at_for_some_time_and_a_short_disturbance_does_not_count():
    host = Host(busy=[(0.5, 1.5)])
    host.watch.seen.clear()
    assert host.watch.look(2.0) == QUICK
    assert len(host.watch.seen) == pytest.approx(20, abs=1)
    assert host.now == pytest.approx(2.0, abs=0.11)


def test_a_watch_that_saw_nothing_probes():
    watch = HostWatch(lambda: 7.0)
    assert watch.usual_us == 7.0
    assert len(watch.seen) == 1


def test_a_processor_is_its_own_host_and_always_quiet():
    watch = watch_host("cpu")
    assert watch.slowness() <= DISTURBED
