"""Start times of kernels, against the queue that predicts latency."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.timeline.gpu import replay_queue
from costmodel.timeline.issue_trace import SectionTrace
from costmodel.timeline.queue import Queue, queue_us
from costmodel.timeline.spans import Span, _queued, spans
from costmodel.timeline.timed_trace import TimedTrace
from tests.timeline.test_gpu import PROGRAM, TABLES
from tests.timeline.test_gpu import timed as timed_pass

us = st.floats(0.0, 100.0)


def test_a_slow_host_by_hand() -> None:
    """After 5 us the host needs 10 us a launch, the device 4: it idles in between."""
    queue = Queue(5.0, [10.0, 10.0], [4.0, 4.0])
    assert _queued(queue, 0.0) == [Span(5.0, 10.0, 15.0), Span(15.0, 10.0, 25.0)]


def test_a_slow_device_by_hand() -> None:
    """The device needs 20 us a kernel and 1 us between two; the host waits for the second, whose value it reads."""
    queue = Queue(0.0, [2.0, 2.0, 2.0], [20.0, 20.0, 20.0], frozenset({1}))
    assert _queued(queue, 1.0) == [Span(0.0, 2.0, 2.0), Span(2.0, 2.0, 23.0), Span(43.0, 2.0, 45.0)]


@given(st.lists(st.tuples(us, us), max_size=8), us, st.floats(0.0, 5.0), st.sets(st.integers(0, 7)))
def test_the_last_kernel_ends_when_the_queue_does(
    calls: list[tuple[float, float]], prologue_us: float, gap_us: float, waits: set[int]
) -> None:
    queue = Queue(prologue_us, [host for host, _ in calls], [device for _, device in calls], frozenset(waits))
    found = _queued(queue, gap_us)
    _, finished = queue_us(queue.host_us, queue.device_us, prologue_us, gap_us, queue.waits)
    ends = [span.device_start_us + device for span, (_, device) in zip(found, calls, strict=True) if device]
    assert max([prologue_us, *ends]) == pytest.approx(finished)


def test_kernels_of_a_cuda_graph_follow_its_launch() -> None:
    timed = TimedTrace(PROGRAM, [3.0, 4.0], [5.0, 5.0])
    first, second = spans("reduce-overhead", timed, TABLES)
    # modules 4 x 0.25, then the graph's start 40 and 10 parameters of 0.5
    assert first == Span(1.0, 45.0, 46.0)
    assert second == Span(46.0, 0.0, 49.0)
    assert second.device_start_us + 4.0 == pytest.approx(replay_queue(timed, TABLES).latency_us(0.0))


def test_a_section_that_no_cuda_graph_holds_launches_its_own_kernels() -> None:
    sections = (SectionTrace(1, 0), SectionTrace(1, 0, is_compiled=False))
    timed = TimedTrace(replace(PROGRAM, sections=sections), [3.0, 4.0], [5.0, 5.0])
    first, second = spans("reduce-overhead", timed, TABLES)
    assert first.host_us == 40.0
    assert second.host_us > 0  # its own launch
    assert second.device_start_us >= first.device_start_us + 3.0


def test_one_span_a_kernel_in_every_mode() -> None:
    timed = TimedTrace(PROGRAM, [3.0, 4.0], [5.0, 5.0])
    for mode in ("eager", "default", "reduce-overhead"):
        assert len(spans(mode, timed, TABLES)) == 2


def replayed(*sections: SectionTrace) -> tuple[Span, ...]:
    """Spans of two kernels of 100 and 50 us."""
    return spans("reduce-overhead", timed_pass(100.0, 50.0, replace(PROGRAM, sections=sections)), TABLES)


# queues of these sections: `tests/timeline/test_gpu.py`
@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ((SectionTrace(2, 10),), (Span(1.0, 45.0, 46.0), Span(46.0, 0.0, 146.0))),
        ((SectionTrace(2, 10, alone=frozenset({1})),), (Span(1.0, 45.0, 46.0), Span(46.0, 12.0, 146.0))),
        # entered by the host for 35 us, launched alone for 8, replayed by a launch of 20
        ((SectionTrace(2, 10, alone=frozenset({0})),), (Span(36.0, 8.0, 44.0), Span(44.0, 20.0, 144.0))),
        ((SectionTrace(1, 6), SectionTrace(1, 4)), (Span(1.0, 43.0, 44.0), Span(44.0, 22.0, 144.0))),
    ],
)
def test_replayed_spans_by_hand(sections: tuple[SectionTrace, ...], expected: tuple[Span, ...]) -> None:
    assert replayed(*sections) == expected


def test_a_section_without_kernels_comes_last() -> None:
    sections = SectionTrace(2, 10), SectionTrace(0, 0, is_compiled=False)
    assert replayed(*sections) == replayed(SectionTrace(2, 10))
