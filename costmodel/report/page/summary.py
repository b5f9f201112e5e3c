"""Several reports as one table: a row a case, the largest gain first, speedups on one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costmodel.report.cases_document import gain
from costmodel.report.figures import milliseconds
from costmodel.report.page.bars import Bar, ratio_axis, ratio_bar
from costmodel.report.page.data import CaseData
from costmodel.report.page.facts import Fact
from costmodel.report.page.rows import sizes
from costmodel.report.types import EAGER, Report

_ABOUT: dict[str, Callable[[Report], str]] = {
    "hardware": lambda report: report.hardware,
    "input": lambda report: sizes(report.input_shape),
    "precision": lambda report: report.computes_in,
    "layout": lambda report: report.layout,
}
"""Facts of a case: a column where cases differ, a line above the table where they agree."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A case: page data, facts in which it differs from others, latencies, speedup on the shared axis."""

    case: CaseData
    facts: tuple[str, ...]
    eager_ms: str
    best_ms: str
    bar: Bar


@dataclass(frozen=True, slots=True)
class Summary:
    """Table of cases.

    Attributes:
        shared: facts of every case.
        differing: names of the facts that cases differ in.
        rows: the cases, the largest gain first.
    """

    shared: tuple[Fact, ...]
    differing: tuple[str, ...]
    rows: tuple[SummaryRow, ...]


def summary_of(reports: Sequence[Report], cases: Sequence[CaseData]) -> Summary:
    """The table of several reports and their page data, which are in the same order."""
    differing = tuple(name for name, fact in _ABOUT.items() if len({fact(report) for report in reports}) > 1)
    shared = tuple((name, fact(reports[0])) for name, fact in _ABOUT.items() if name not in differing and reports)
    bests = [report.modes.get(report.best_mode) for report in reports]
    bounds = [bound for mode in bests if mode for bound in (mode.speedup, mode.speedup_low, mode.speedup_high)]
    above = ratio_axis(bound for bound in bounds if bound is not None and bound >= 1.0)
    below = ratio_axis(bound for bound in bounds if bound is not None and bound < 1.0)
    rows = []
    for report, case, best in zip(reports, cases, bests, strict=True):
        eager = report.modes.get(EAGER)
        interval = (best.speedup_low, best.speedup_high) if best else (None, None)
        rows.append(
            SummaryRow(
                case=case,
                facts=tuple(_ABOUT[name](report) for name in differing),
                eager_ms=milliseconds(eager.latency_ms if eager else None),
                best_ms=milliseconds(best.latency_ms if best else None),
                bar=ratio_bar(gain(report), *interval, above, below),
            )
        )
    order = sorted(range(len(rows)), key=lambda index: gain(reports[index]), reverse=True)
    return Summary(shared, differing, tuple(rows[index] for index in order))
