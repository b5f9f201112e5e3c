"""Size of a model in a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from costmodel.report.figures import mebibytes, number

if TYPE_CHECKING:
    from costmodel.report import Report


def size_of(report: Report) -> str:
    """Parameters, multiply-accumulates and peak memory; empty where none is known."""
    parts: list[tuple[float | None, Callable[[float], str]]] = [
        (report.parameters, lambda count: f"{scaled(count)} parameters"),
        (report.flops or None, lambda flops: f"{number(flops / 2e9)} GMACs"),
        (report.peak_memory_bytes, lambda nbytes: f"peak memory {mebibytes(nbytes)} MiB without workspaces"),
    ]
    return ", ".join(text(value) for value, text in parts if value is not None)


def scaled(count: float) -> str:
    """A count to three significant digits: `11.7 M`, `2.83 G`, `512`."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= factor:
            return f"{count / factor:.3g}{unit}"
    return f"{count:.0f}"
