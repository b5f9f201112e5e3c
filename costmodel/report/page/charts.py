"""Numbers of a report for the charts and the table of a page, as columns; a text is an index into `words`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costmodel.report.kernel_prediction import KernelPrediction
from costmodel.report.page.facts import Ceilings
from costmodel.report.page.rows import Rows, Words, short
from costmodel.report.types import Report

MOST_POINTS = 1_500
"""Most distinct kernels of a mode in the roofline chart: those with most device time."""
TIME_DIGITS = 7
"""Significant digits of the beginning of a kernel."""


def chart_data(report: Report, ceilings: Ceilings | None) -> dict[str, Any]:
    """Module tree, kernels by mode and ceilings, for scripts."""
    words = Words()
    rows = Rows(report.tree(), words)
    return {
        "modes": [{"name": name, "latency": short(mode.latency_ms * 1e3)} for name, mode in report.modes.items()],
        "best": report.best_mode,
        "tree": rows.columns,
        "collapsed": {layer.name: rows.place_of(layer.name) for layer in report.layers if not rows.has(layer.name)},
        "kernels": {mode: _kernel_columns(kernels, rows, words) for mode, kernels in report.kernels.items()},
        "ceilings": _ceilings(ceilings, report.precision),
        "mostPoints": MOST_POINTS,
        "words": words.texts,
    }


def _kernel_columns(kernels: Sequence[KernelPrediction], rows: Rows, words: Words) -> dict[str, list[Any]]:
    """Kernels of a mode in order, a column a field; `node` is the row of the first layer that a kernel serves."""
    return {
        "name": [words(kernel.name) for kernel in kernels],
        "node": [rows.place_of(kernel.layers[0]) if kernel.layers else 0 for kernel in kernels],
        "layer": [words(kernel.layers[0] if kernel.layers else "") for kernel in kernels],
        "more": [max(0, len(kernel.layers) - 1) for kernel in kernels],
        "bound": [words(kernel.bound) for kernel in kernels],
        "flops": [short(kernel.flops) for kernel in kernels],
        "bytes": [short(kernel.bytes) for kernel in kernels],
        "hostStart": [short(kernel.host_start_us, TIME_DIGITS) for kernel in kernels],
        "host": [short(kernel.host_us) for kernel in kernels],
        "start": [short(kernel.device_start_us, TIME_DIGITS) for kernel in kernels],
        "device": [short(kernel.device_us) for kernel in kernels],
        "extra": [int(kernel.extrapolated) for kernel in kernels],
    }


def _ceilings(ceilings: Ceilings | None, precision: str) -> dict[str, Any] | None:
    """Bandwidth, and the arithmetic ceilings in a precision."""
    if ceilings is None:
        return None
    peaks = [
        {"name": name, "peak": short(peak)}
        for name, peak in ceilings.flops_per_us.items()
        if name.rpartition(".")[2] == precision
    ]
    return {"bytes": short(ceilings.bytes_per_us), "peaks": peaks}
