"""Start times of kernels in reduce-overhead, by hand: what a CUDA graph replays, and what divides it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.timeline.issue_trace import SectionTrace
from costmodel.timeline.spans import Span, spans
from tests.timeline.test_gpu import PROGRAM, TABLES, timed


def replayed(*sections: SectionTrace) -> tuple[Span, ...]:
    """Spans of two kernels of 100 and 50 us."""
    return spans("reduce-overhead", timed(100.0, 50.0, replace(PROGRAM, sections=sections)), TABLES)


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
def test_spans_by_hand(sections: tuple[SectionTrace, ...], expected: tuple[Span, ...]):
    assert replayed(*sections) == expected


def test_a_section_without_kernels_comes_last():
    sections = SectionTrace(2, 10), SectionTrace(0, 0, is_compiled=False)
    assert replayed(*sections) == replayed(SectionTrace(2, 10))
