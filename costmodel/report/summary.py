"""A report in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from costmodel.report.escape import terminal
from costmodel.report.figures import milliseconds, ratio_interval, times

if TYPE_CHECKING:
    from costmodel.report import Report


def one_line(report: Report) -> str:
    """Model, hardware, verdict and best mode: the `repr` of a report."""
    shape = "x".join(map(str, report.input_shape))
    about = f"{report.model} on {report.hardware}, {shape} {report.precision}: {report.verdict}"
    best = report.modes.get(report.best_mode)
    if best is not None:
        about += f", {report.best_mode} {milliseconds(best.latency_ms)} ms"
        if best.speedup is not None:
            bounds = ratio_interval((best.speedup_low, best.speedup_high))
            about += f", {times(best.speedup)}" + (f" ({bounds})" if bounds else "")
    return f"<costmodel.Report {terminal(about)}>"
