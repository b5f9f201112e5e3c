"""Columns of the table of modes in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from costmodel.report.bars import bar
from costmodel.report.figures import (
    NONE,
    calls,
    calls_interval,
    milliseconds,
    number,
    ratio_interval,
    seconds,
    seconds_interval,
    time_interval,
    times,
    whole,
)
from costmodel.report.prediction_document import break_even
from costmodel.report.speedup_style import speedup_style
from costmodel.report.terminal_columns import Cells
from costmodel.report.types import ModePrediction, Report

BAR = 10
"""Cells of the longest bar."""

Text = Callable[[ModePrediction], str]
_FIGURES: Sequence[tuple[str, int, Text]] = (
    ("latency\nms", 0, lambda mode: milliseconds(mode.latency_ms)),
    ("90 %\ninterval", 8, lambda mode: time_interval((mode.low_ms, mode.high_ms))),
    ("speedup", 0, lambda mode: times(mode.speedup)),
    ("90 %\ninterval", 1, lambda mode: ratio_interval((mode.speedup_low, mode.speedup_high))),
    ("images/s", 3, lambda mode: _figure(mode.images_per_s, whole)),
    ("TFLOP/s", 5, lambda mode: _figure(mode.tflops, lambda value: number(value, 1 if value >= 10 else 2))),
    ("roofline\nms", 6, lambda mode: _figure(mode.roofline_ms, milliseconds)),
    ("host\nms", 10, lambda mode: milliseconds(mode.host_ms)),
    ("device\nms", 7, lambda mode: milliseconds(mode.device_ms)),
    ("compile\ns", 4, lambda mode: _figure(mode.compile_s, seconds)),
    ("90 %\ninterval", 12, lambda mode: seconds_interval((mode.compile_s_low, mode.compile_s_high))),
    ("warm\ns", 13, lambda mode: _figure(mode.compile_warm_s, seconds)),
    ("break-even\nafter", 9, lambda mode: _figure(break_even(mode)[0], calls)),
    ("90 %\ninterval", 14, lambda mode: calls_interval(break_even(mode)[1])),
)
"""Heading, place in the order in which columns are dropped (the highest first), and text of each figure."""


def mode_columns(report: Report, unicode: bool) -> list[Cells]:
    """A row a mode, with a bar of its latency."""
    modes = list(report.modes.values())
    longest = max((mode.latency_ms for mode in modes), default=0.0)
    bars = [bar(mode.latency_ms, longest, BAR, unicode) for mode in modes]
    styles = [speedup_style(mode.speedup) for mode in modes]
    named = [
        Cells("mode", list(report.modes), styles=["bold" if name == report.best_mode else "" for name in report.modes]),
        Cells("", bars, drop=2, styles=["blue"] * len(modes)),
    ]
    columns = [
        Cells(title, list(map(text, modes)), is_figure=True, drop=drop, styles=styles if title == "speedup" else ())
        for title, drop, text in _FIGURES
    ]
    return named + [column for column in columns if any(text not in ("", NONE) for text in column.texts)]


def _figure(value: Any, text: Callable[[Any], str]) -> str:
    """Text of a figure; empty where there is none."""
    return "" if value is None else text(value)
