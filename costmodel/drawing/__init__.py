"""Graph -> SVG, Graphviz DOT or JSON."""

from costmodel.drawing.to_dot import to_dot
from costmodel.drawing.to_json import to_json
from costmodel.drawing.to_svg import to_svg

__all__ = ["to_dot", "to_json", "to_svg"]
