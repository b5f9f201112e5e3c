"""Units and their dependencies in Graphviz's DOT language."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.drawing.colors import speedup_color
from costmodel.drawing.labels import shortened, speedup_text, unit_operators
from costmodel.ir import Graph
from costmodel.prediction.layers import Unit
from costmodel.report.escape import dot
from costmodel.streams import unit_dependencies


def to_dot(graph: Graph, units: Sequence[Unit], speedups: Sequence[float | None] | None = None) -> str:
    """Write a directed graph with one node a unit, coloured by speedup if speedups are given."""
    before, fed = unit_dependencies(graph, units)
    lines = [
        f"digraph {dot(shortened(graph.name))} {{",
        '  node [shape=box, style="rounded,filled", fillcolor="#f7f7f7", fontname="sans-serif"];',
        '  input [shape=plaintext, style="", label="input"];',
    ]
    for index, unit in enumerate(units):
        words = [shortened(unit.name), unit_operators(unit)]
        color = ""
        if speedups is not None:
            words.append(speedup_text(speedups[index]))
            color = f', fillcolor="{speedup_color(speedups[index])}"'
        lines.append(f"  u{index} [label={dot(*words)}{color}];")
    lines += [f"  input -> u{index};" for index in fed]
    lines += [f"  u{source} -> u{index};" for index, found in enumerate(before) for source in sorted(found)]
    return "\n".join([*lines, "}", ""])
