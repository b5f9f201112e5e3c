"""Columns of the module tree and of the list of layers in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costmodel.report.figures import ratio_interval, tenths, times
from costmodel.report.speedup_style import speedup_style
from costmodel.report.terminal_columns import Cells
from costmodel.report.tree_rows import TreeRow

NOTABLE = 0.1
"""Share of extrapolated time from which a row is marked."""
MARK = "~"
"""Sign before the speedup of a row with that much extrapolated time."""
_LEAST_NAME, _LEAST_WORD, _LEAST_REASON = 7, 12, 20
"""Characters that names, words and reasons keep, if they have as many."""


def tree_columns(rows: Sequence[TreeRow], unicode: bool) -> list[Cells]:
    """A row a module.

    Columns are dropped in the order class, interval, parameters, share, output, kind, bound, reason, compiled.
    """
    nodes = [row.node for row in rows]
    whole = nodes[0].eager_us or 1.0
    speedups = [_speedup(node.speedup, node.extrapolated_share) for node in nodes]
    styles = [speedup_style(node.speedup) for node in nodes]
    shapes = ["x".join(map(str, node.shape)) for node in nodes]
    counts = [f"{node.parameters:,}" if node.parameters else "" for node in nodes]
    shares = [f"{node.eager_us / whole:.0%}" for node in nodes]
    intervals = [ratio_interval((node.speedup_low, node.speedup_high)) for node in nodes]
    heads, names, tails = zip(*(tree_label(row, unicode) for row in rows), strict=True)
    styled = ["bold" if not row.last else "dim" if row.others else "" for row in rows]
    return [
        Cells("module", names, least=_LEAST_NAME, keeps_ends=True, heads=heads, tails=tails, styles=styled),
        Cells("class", [node.module_type for node in nodes], drop=9, least=_LEAST_WORD, keeps_ends=True),
        Cells("output", shapes, drop=5, least=_LEAST_REASON),
        Cells("parameters", counts, is_figure=True, drop=7),
        Cells("kind", [node.kind for node in nodes], drop=4, least=_LEAST_WORD),
        Cells("eager\nus", [tenths(node.eager_us) for node in nodes], is_figure=True),
        Cells("compiled\nus", [tenths(node.compiled_us) for node in nodes], is_figure=True, drop=1),
        Cells("share", shares, is_figure=True, drop=6),
        Cells("speedup", speedups, is_figure=True, styles=styles),
        Cells("90 %\ninterval", intervals, is_figure=True, drop=8),
        Cells("bound", [node.bound for node in nodes], drop=3),
        Cells("reason", [node.reason for node in nodes], drop=2, least=_LEAST_REASON),
    ]


def _speedup(speedup: float | None, extrapolated_share: float) -> str:
    return (MARK if speedup and extrapolated_share >= NOTABLE else "") + times(speedup)


def tree_label(row: TreeRow, unicode: bool) -> tuple[str, str, str]:
    """Branches, label and number of identical modules of a row: `|- `, `1..11`, ` x11`."""
    node, times_sign = row.node, "\u00d7" if unicode else "x"
    name = f"{chr(0x2026) if unicode else '...'} {row.others} more" if row.others else node.label
    count = f" {times_sign}{node.count}" if node.count > 1 else ""
    if not row.last:
        return "", name, count
    passing, corner, fork = ("\u2502  ", "\u2514\u2500 ", "\u251c\u2500 ") if unicode else ("|  ", "`- ", "|- ")
    before = "".join("   " if last else passing for last in row.last[:-1])
    return before + (corner if row.last[-1] else fork), name, count


def layer_columns(rows: Sequence[Sequence[Any]]) -> list[Cells]:
    """A row a layer, from rows of `prediction_document.layer_rows`."""
    names, ops, eager, compiled, speedups, intervals, backends, flags = zip(*rows, strict=True)
    return [
        Cells("layer", names, least=_LEAST_NAME, keeps_ends=True),
        Cells("operators", ops, drop=5, least=_LEAST_REASON),
        Cells("eager\nus", list(map(tenths, eager)), is_figure=True),
        Cells("compiled\nus", list(map(tenths, compiled)), is_figure=True),
        Cells("speedup", list(map(times, speedups)), is_figure=True, styles=list(map(speedup_style, speedups))),
        Cells("90 %\ninterval", list(map(ratio_interval, intervals)), is_figure=True, drop=3),
        Cells("backend", backends, drop=4, least=_LEAST_WORD),
        Cells("", flags, drop=1),
    ]
