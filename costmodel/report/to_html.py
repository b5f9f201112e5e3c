"""Reports as one HTML page that needs nothing else: no script, no font, no image."""

from __future__ import annotations

import math
from collections.abc import Sequence

from costmodel.report import rows
from costmodel.report.escape import markup
from costmodel.report.types import EAGER, ModePrediction, Report

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
.layers :is(th, td):nth-child(2), .layers :is(th, td):nth-child(7) { text-align: left; }
.bar { display: block; height: .7rem; background: #4a7dcf; }
.bars td:nth-child(2) { width: 30rem; }
.reasons :is(th, td) { text-align: left; }
.verdict { font-weight: 600; }
.notes { color: #b26a00; }
"""


def to_html(reports: Sequence[Report], layers: str) -> str:
    """A self-contained page; every text of a report is escaped."""
    title = ", ".join(report.model for report in reports)
    return page(f"costmodel: {title}", "\n".join(_section(report, layers) for report in reports))


def page(title: str, body: str) -> str:
    """A page that needs nothing else, well-formed as XML too; the title is escaped here, the body is HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f"<title>{markup(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _section(report: Report, layers: str) -> str:
    parts = [
        f"<h1>{markup(rows.headline(report))}</h1>",
        f'<p class="verdict">{markup(rows.verdict(report))}</p>',
        _bars(report),
        tagged_table("modes", rows.MODE_COLUMNS, rows.mode_rows(report)),
    ]
    layer_rows = rows.layer_rows(report, layers)
    if layer_rows:
        parts.append(f"<h2>{markup(rows.layers_title(report, layers))}</h2>")
        parts.append(tagged_table("layers", rows.LAYER_COLUMNS, layer_rows))
    reason_rows = rows.reason_rows(report)
    if reason_rows:
        parts.append(f"<h2>{rows.REASONS_TITLE}</h2>")
        parts.append(tagged_table("reasons", rows.REASON_COLUMNS, reason_rows))
    notes = "".join(f"<li>{markup(note)}</li>" for note in rows.notes(report))
    if notes:
        parts.append(f'<ul class="notes">{notes}</ul>')
    return "<section>\n" + "\n".join(parts) + "\n</section>"


def _bars(report: Report) -> str:
    finite = {name: mode for name, mode in report.modes.items() if math.isfinite(mode.latency_ms)}
    longest = max((mode.latency_ms for mode in finite.values()), default=0.0)
    if longest <= 0.0:
        return ""
    bars = "".join(_bar(name, mode, longest) for name, mode in finite.items())
    return f'<table class="bars">{bars}</table>'


def _bar(name: str, mode: ModePrediction, longest: float) -> str:
    share = 100.0 * max(0.0, mode.latency_ms) / longest
    speedup = "" if name == EAGER else f" ({rows.times(mode.speedup)})"
    return (
        f'<tr><td>{markup(name)}</td><td><span class="bar" style="width:{share:.1f}%"></span></td>'
        f"<td>{markup(rows.milliseconds(mode.latency_ms))} ms{markup(speedup)}</td></tr>"
    )


def tagged_table(kind: str, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table of class `kind`; every cell is escaped."""
    head = "".join(f"<th>{markup(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{markup(cell)}</td>" for cell in row) + "</tr>\n" for row in cells)
    return f'<table class="{kind}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>'
