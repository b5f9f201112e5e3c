"""Several predictions as one table: a row a case, the largest gain first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from costmodel.report.document import Column, Document, Records, Row, Section, figures
from costmodel.report.figures import calls, counted, milliseconds, ratio_interval, times
from costmodel.report.types import EAGER, Report

_ABOUT: dict[str, Callable[[Report], object]] = {
    "hardware": lambda report: report.hardware,
    "batch": lambda report: report.batch_size,
    "precision": lambda report: report.computes_in,
    "layout": lambda report: report.layout,
}
"""Facts of a case: a column where cases differ, a part of the title where they agree."""

FIGURES = (
    Column("verdict"),
    Column("best mode"),
    figures("eager ms", milliseconds, is_detail=True),
    figures("best ms", milliseconds),
    figures("speedup", times),
    figures("90 % interval", ratio_interval),
    figures("break-even after", calls, is_detail=True),
    figures("extra- polated", lambda share: f"{share:.0%}", is_detail=True),
)
"""Columns of every table of cases, after those that name the case."""


def cases_document(reports: Sequence[Report]) -> Document:
    """The document of several cases."""
    varying = [name for name, fact in _ABOUT.items() if len({fact(report) for report in reports}) > 1]
    shared = [_named(name, fact(reports[0])) for name, fact in _ABOUT.items() if name not in varying]
    columns = (Column("model", keeps_width=True), *(_fact_column(name, reports) for name in varying), *FIGURES)
    ranked = sorted(reports, key=gain, reverse=True)  # equal gains stay in the order of the arguments
    rows = [(report.model, *(_ABOUT[name](report) for name in varying), *_figures(report)) for report in ranked]
    title = ", ".join([f"{counted(len(reports), 'case')} by gain", *shared])
    records = Records([column.title for column in columns], [])
    return Document("comparison", title, [Section("", columns, rows)], {}, records)


def gain(report: Report) -> float:
    """Speedup of the fastest mode over eager execution; 1 where that is eager execution itself."""
    best = report.modes.get(report.best_mode)
    found = 1.0 if best is None or best.speedup is None else best.speedup
    return found if math.isfinite(found) else 0.0


def _named(name: str, value: object) -> str:
    return f"batch {value}" if name == "batch" else str(value)


def _fact_column(name: str, reports: Sequence[Report]) -> Column:
    is_number = all(isinstance(_ABOUT[name](report), int) for report in reports)
    return Column(name, is_figure=is_number)


def _figures(report: Report) -> Row:
    best, eager = report.modes.get(report.best_mode), report.modes.get(EAGER)
    verdict = f"{report.verdict} ({report.leaning}?)" if _is_doubtful(report) else report.verdict
    return (
        verdict,
        report.best_mode,
        None if eager is None else eager.latency_ms,
        None if best is None else best.latency_ms,
        gain(report),
        (None, None) if best is None else (best.speedup_low, best.speedup_high),
        None if best is None else best.break_even_calls,
        report.extrapolated_share,
    )


def _is_doubtful(report: Report) -> bool:
    return report.verdict == "uncertain" and report.leaning is not None
