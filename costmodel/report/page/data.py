"""Report -> plain data of a page: texts and geometry for templates, numbers for scripts.

Only this module knows the fields of a report; templates and scripts see the records here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from costmodel.report.figures import (
    NEVER,
    calls,
    calls_interval,
    counted,
    mebibytes,
    milliseconds,
    number,
    ratio_interval,
    seconds,
    seconds_interval,
    time_interval,
    times,
    whole,
)
from costmodel.report.page.answer import Answer, answer_of
from costmodel.report.page.bars import Bar, linear_bar, ratio_axis, ratio_bar
from costmodel.report.page.charts import chart_data
from costmodel.report.page.facts import MOST_DRAWN, Fact, PageFacts, ProfileFacts
from costmodel.report.page.rows import sizes
from costmodel.report.page.tables import PlainTable, plain_table
from costmodel.report.types import EAGER, GraphBreak, ModePrediction, Reason, Report


@dataclass(frozen=True, slots=True)
class ModeRow:
    """A mode's texts and bars."""

    name: str
    is_best: bool
    latency: str
    latency_interval: str
    latency_bar: Bar
    throughput: str
    rate: str
    host: str
    device: str
    speedup: str
    speedup_interval: str
    speedup_bar: Bar | None
    compile: str
    compile_interval: str
    break_even: str
    break_even_interval: str


@dataclass(frozen=True, slots=True)
class CaseData:
    """One report of a page.

    Attributes:
        id: prefix of its anchors.
        title: model and hardware.
        model, hardware: the same apart.
        about: input, precision, layout, size, host, graphs.
        answer: advice with key figures.
        modes: a row a mode.
        warnings: lines under the answer, about what figures do not cover.
        breaks: graph breaks.
        graphs: number of graphs in words.
        skipped: graphs that are no CUDA graph.
        reasons: reasons behind the prediction.
        trust: assumptions and extrapolated shares, in sentences.
        profile: facts of the profile.
        drawing: SVG of the graph; empty for none.
        drawing_note: why the drawing is left out; empty otherwise.
        script: data of the charts; empty without a module tree.
        best: the fastest mode's row; None where nothing is predicted.
        verdict: verdict in a word or two.
        extrapolated: share of the device time that is extrapolated.
    """

    id: str
    title: str
    model: str
    hardware: str
    about: tuple[Fact, ...]
    answer: Answer
    modes: tuple[ModeRow, ...]
    warnings: tuple[str, ...]
    breaks: tuple[GraphBreak, ...]
    graphs: str
    skipped: tuple[str, ...]
    reasons: tuple[Reason, ...]
    trust: tuple[str, ...]
    profile: ProfileFacts
    drawing: str
    drawing_note: str
    script: Mapping[str, Any]
    best: ModeRow | None
    verdict: str
    extrapolated: str

    @property
    def has_kernels(self) -> bool:
        """Whether there are kernels for a timeline and a roofline."""
        return any(columns["name"] for columns in self.script.get("kernels", {}).values())

    @property
    def drawing_markup(self) -> Markup:
        """The drawing as elements of the page; `costmodel.drawing` has escaped its texts."""
        return Markup(self.drawing)  # noqa: S704

    @property
    def accuracy(self) -> Sequence[PlainTable]:
        """Tables of the profile's accuracy."""
        return [plain_table(section) for section in self.profile.accuracy]


def case_data(report: Report, index: int, facts: PageFacts, layers: str = "all") -> CaseData:
    """The data of one report.

    Args:
        report: the prediction.
        index: its place on the page.
        facts: facts beside the reports.
        layers: `none` leaves out modules and kernels.
    """
    profile = facts.profiles.get(report.hardware, ProfileFacts())
    drawing = facts.drawings[index] if index < len(facts.drawings) and layers != "none" else ""
    is_too_large = len(report.layers) > MOST_DRAWN and layers != "none"
    modes = _mode_rows(report)
    return CaseData(
        id=f"c{index}",
        title=f"{report.model} on {report.hardware}",
        model=report.model,
        hardware=report.hardware,
        about=(
            ("input", sizes(report.input_shape)),
            ("precision", report.computes_in),
            ("layout", report.layout),
            *_size(report),
            *([("host", _host(report))] if report.host_calibrated is not None else []),
            ("graphs", report.graphs.summary),
        ),
        answer=answer_of(report),
        modes=modes,
        warnings=report.warnings,
        breaks=report.graphs.breaks,
        graphs=report.graphs.summary,
        skipped=report.graphs.skipped,
        reasons=report.explanation,
        trust=tuple(_trust(report)),
        profile=profile,
        drawing=drawing,
        drawing_note=_too_large(len(report.layers)) if is_too_large and not drawing else "",
        script=chart_data(report, profile.ceilings) if report.layers and layers != "none" else {},
        best=next((row for row in modes if row.is_best), None),
        verdict=_verdict(report),
        extrapolated=f"{report.extrapolated_share:.0%}",
    )


def _verdict(report: Report) -> str:
    likelier = report.verdict == "uncertain" and report.leaning
    return f"{report.verdict}, likely {report.leaning}" if likelier else report.verdict


def _size(report: Report) -> list[Fact]:
    """Parameters, arithmetic and memory, where they are known."""
    facts = []
    if report.parameters:
        facts.append(("parameters", f"{report.parameters / 1e6:,.1f} M"))
    if report.flops:
        facts.append(("multiply-adds", f"{report.flops / 2e9:,.2f} G"))
    if report.peak_memory_bytes:
        facts.append(("memory", f"{mebibytes(report.peak_memory_bytes)} MiB"))
    return facts


def _too_large(layers: int) -> str:
    return f"A drawing of {counted(layers, 'layer')} is too large for this page, which draws up to {MOST_DRAWN:,}."


def _host(report: Report) -> str:
    return f"{report.host}, calibrated" if report.host_calibrated else "uncalibrated"


def _mode_rows(report: Report) -> tuple[ModeRow, ...]:
    modes = report.modes.values()
    ends = (end for mode in modes for end in (mode.latency_ms, mode.high_ms))
    longest = max(filter(math.isfinite, ends), default=0.0)
    known = [value for mode in modes for value in (mode.speedup, mode.speedup_low, mode.speedup_high)]
    above = ratio_axis(value for value in known if value is not None and value >= 1.0)
    below = ratio_axis(value for value in known if value is not None and value < 1.0)
    return tuple(
        ModeRow(
            name=name,
            is_best=name == report.best_mode,
            latency=milliseconds(mode.latency_ms),
            latency_interval=_spaced(time_interval((mode.low_ms, mode.high_ms))),
            latency_bar=linear_bar(mode.latency_ms, mode.low_ms, mode.high_ms, longest),
            throughput=f"{whole(mode.images_per_s)}/s" if mode.images_per_s else "",
            rate=f"{number(mode.tflops)} TFLOP/s" if mode.tflops else "",
            host=milliseconds(mode.host_ms),
            device=milliseconds(mode.device_ms),
            speedup=times(mode.speedup).replace("x", "×") if name != EAGER else "1×",
            speedup_interval=_spaced(ratio_interval((mode.speedup_low, mode.speedup_high))),
            speedup_bar=ratio_bar(mode.speedup or 1.0, mode.speedup_low, mode.speedup_high, above, below)
            if name != EAGER
            else ratio_bar(1.0, None, None, above, below),
            **_compiling(mode),
        )
        for name, mode in report.modes.items()
    )


def _compiling(mode: ModePrediction) -> dict[str, str]:
    """Texts of compile time and break-even; empty for a mode that compiles nothing."""
    if mode.compile_s is None:
        return dict.fromkeys(("compile", "compile_interval", "break_even", "break_even_interval"), "")
    found = (mode.break_even_calls, mode.break_even_low, mode.break_even_high)
    middle, low, high = (NEVER if value is None else value for value in found)
    return {
        "compile": f"{seconds(mode.compile_s)} s",
        "compile_interval": _spaced(seconds_interval((mode.compile_s_low, mode.compile_s_high))),
        "break_even": calls(middle),
        "break_even_interval": "" if mode.compile_s_low is None else _spaced(calls_interval((low, high))),
    }


def _spaced(interval: str) -> str:
    """An interval with an en dash."""
    return interval.replace("-", "–")


def _trust(report: Report) -> list[str]:
    """Assumptions of the figures, and which of them are extrapolated."""
    lines = []
    if report.assumed_host:
        lines.append(f"Host: {report.assumed_host}. --host calibrates.")
    odd = sum(not layer.in_range for layer in report.layers)
    if odd or report.extrapolated_share:
        lines.append(
            f"Extrapolated: {report.extrapolated_share:.0%} of the device time, in {odd} of "
            f"{counted(len(report.layers), 'layer')}. These kernels are far from any measured one: their times are "
            "known within a factor of 2 at best, and the intervals are wider by their share."
        )
    elif report.layers:
        lines.append("Extrapolated: nothing. Every kernel is close to measured ones.")
    unruled = (f"{item.op} in {item.where or report.model}" for item in report.unsupported)
    return [*lines, *(f"Operator without a cost rule: {operator}." for operator in unruled)]
