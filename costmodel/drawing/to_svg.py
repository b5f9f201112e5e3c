"""Stream tree of units as a self-contained SVG: no script, font or image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from costmodel.drawing.colors import LIMIT, UNKNOWN, speedup_color
from costmodel.drawing.labels import shortened, speedup_text, unit_operators
from costmodel.drawing.layout import Drawing, Placed, Wire, arrange
from costmodel.ir import Graph
from costmodel.prediction.layers import Unit
from costmodel.report.escape import markup
from costmodel.streams import unit_tree

_CHARACTER = 6.8
"""Width of a character, at 11 pixels."""
_HEIGHT = 46.0
_MARGIN = 24.0
_LEGEND = 64.0
_STYLE = """
text { font: 11px ui-monospace, monospace; text-anchor: middle; fill: #111; }
.name { font-weight: 600; }
.unit rect { stroke: #555; rx: 4px; }
path { fill: none; stroke: #777; stroke-width: 1.2; }
.title { font-size: 14px; font-weight: 600; }
"""


def to_svg(
    graph: Graph, units: Sequence[Unit], speedups: Sequence[float | None], title: str, *, embedded: bool = False
) -> str:
    """Draw the stream tree of units, each coloured by its predicted speedup.

    Args:
        graph: captured graph.
        units: units of the graph.
        speedups: one a unit; None for a unit without a prediction.
        title: headline of the drawing.
        embedded: as an element of an HTML page, which has the styles, the title and the legend itself.
    """
    known = {id(unit): speedup for unit, speedup in zip(units, speedups, strict=True)}
    drawing = arrange(unit_tree(graph, units), _size)
    if embedded:
        return _embedded(drawing.moved(drawing.width / 2 + _MARGIN, _MARGIN), known, title)
    shown = shortened(title)
    width = max(drawing.width + 2 * _MARGIN, 8.0 * len(shown) + 2 * _MARGIN, 420.0)
    middle, top = width / 2, _LEGEND + _MARGIN
    moved = drawing.moved(middle, top)
    height = top + drawing.height + _MARGIN
    frame = f'width="{width:.1f}" height="{height:.1f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {frame} viewBox="0 0 {width:.1f} {height:.1f}">',
        f"<title>{markup(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect {frame} fill="white"/>',
        f'<text class="title" x="{middle:.1f}" y="22">{markup(shown)}</text>',
        *_legend(middle),
        *map(_wire, moved.wires),
        *(_unit(box, known[id(box.item)]) for box in moved.boxes),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


def _embedded(drawing: Drawing[Unit], known: Mapping[int, float | None], title: str) -> str:
    width, height = f"{drawing.width + 2 * _MARGIN:.1f}", f"{drawing.height + 2 * _MARGIN:.1f}"
    frame = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg {frame} role="img" aria-label="{markup(title)}">',
        *map(_wire, drawing.wires),
        *(_unit(box, known[id(box.item)], marked=True) for box in drawing.boxes),
        "</svg>",
    ]
    return "\n".join(parts)


def _size(unit: Unit) -> tuple[float, float]:
    longest = max(len(shortened(unit.name)), len(unit_operators(unit)), len(speedup_text(None)))
    return longest * _CHARACTER + 16.0, _HEIGHT


def _unit(box: Placed[Unit], speedup: float | None, *, marked: bool = False) -> str:
    """A unit's box; `marked` with its layer and speedup, for a script."""
    name, operators, said = box.item.name, unit_operators(box.item), speedup_text(speedup)
    rows = ((14, ' class="name"', shortened(name)), (27, "", operators), (40, "", said))
    words = "".join(f'<text{kind} x="{box.x:.1f}" y="{box.y + y:.1f}">{markup(word)}</text>' for y, kind, word in rows)
    value = "" if speedup is None else f"{speedup:.3g}"
    data = f' data-layer="{markup(name)}" data-speedup="{value}"' if marked else ""
    return (
        f'<g class="unit"{data}><title>{markup(f"{name}: {operators}, {said}")}</title>'
        f'<rect x="{box.x - box.width / 2:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'fill="{speedup_color(speedup)}"/>{words}</g>'
    )


def _wire(wire: Wire) -> str:
    if not wire.bend:
        return f'<path d="M{wire.x1:.1f} {wire.y1:.1f}L{wire.x2:.1f} {wire.y2:.1f}"/>'
    aside = (wire.x1 + wire.x2) / 2 + wire.bend / 0.75  # a cubic goes three quarters of the way to its control points
    return (
        f'<path d="M{wire.x1:.1f} {wire.y1:.1f}C{aside:.1f} {wire.y1:.1f} {aside:.1f} {wire.y2:.1f} '
        f'{wire.x2:.1f} {wire.y2:.1f}"/>'
    )


def _legend(middle: float) -> Iterator[str]:
    """Legend of colours and their speedups."""
    steps = (1 / LIMIT, 0.5, 0.8, 1.0, 1.25, 2.0, LIMIT, None)
    for index, speedup in enumerate(steps):
        x = middle + (index - len(steps) / 2) * 50.0
        color = UNKNOWN if speedup is None else speedup_color(speedup)
        yield f'<rect x="{x:.1f}" y="34" width="50" height="12" fill="{color}" stroke="#bbb"/>'
        said = "unknown" if speedup is None else f"{speedup:g}x"
        yield f'<text x="{x + 25:.1f}" y="58">{said}</text>'
