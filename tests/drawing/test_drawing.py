"""Drawings: every unit in its place and colour, well-formed, and names of a model never parsed as markup."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from costmodel.capture.trace import capture
from costmodel.drawing import to_dot, to_json, to_svg
from costmodel.drawing.colors import UNKNOWN, speedup_color
from costmodel.drawing.layout import GAP, Drawing, arrange
from costmodel.ir import Graph
from costmodel.prediction.layers import find_units
from costmodel.streams import Leaf, Pipeline, SplitJoin, leaves, stream_tree, unit_dependencies, unit_tree

SVG = "{http://www.w3.org/2000/svg}"
Graphs = Callable[[str], Graph]


@pytest.mark.parametrize(
    ("speedup", "color"),
    [
        (1.0, "#f7f7f7"),
        (4.0, "#4393c3"),
        (0.25, "#e66101"),
        (100.0, "#4393c3"),  # no deeper than the limit
        (2.0, "#9dc5dd"),  # half way on the logarithm's scale: (247 + 67) / 2 = 157 = 0x9d, and so on
        (None, UNKNOWN),
        (float("nan"), UNKNOWN),
        (0.0, UNKNOWN),
    ],
)
def test_colors(speedup: float | None, color: str) -> None:
    assert speedup_color(speedup) == color


def test_a_drawing_inside_a_page_brings_no_style_and_names_its_layers(graph_of: Graphs) -> None:
    graph = graph_of("alexnet")
    units = find_units(graph)
    text = to_svg(graph, units, [2.0, None, *[1.0] * (len(units) - 2)], "</svg><b>", embedded=True)
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == "</svg><b>"
    assert {element.tag for element in root.iter()} == {"svg", "g", "title", "rect", "text", "path"}  # no <style>
    marks = {(unit.get("data-layer"), unit.get("data-speedup")) for unit in root.iter("g")}
    assert {(units[0].name, "2"), (units[1].name, ""), (units[2].name, "1")} <= marks
    assert len(root.findall("g")) == len(units)


class TestLayout:
    @staticmethod
    def size(item: object) -> tuple[float, float]:
        return 40.0, 10.0

    def test_a_pipeline_goes_down(self) -> None:
        drawing = arrange(Pipeline((Leaf("a"), Leaf("b"))), self.size)
        assert [(box.item, box.x, box.y) for box in drawing.boxes] == [("a", 0.0, 0.0), ("b", 0.0, 10.0 + GAP)]
        assert (drawing.width, drawing.height) == (40.0, 20.0 + GAP)

    def test_branches_stand_side_by_side(self) -> None:
        drawing = arrange(SplitJoin((Leaf("a"), Leaf("b"))), self.size)
        assert [(box.x, box.y) for box in drawing.boxes] == [(-(40 + GAP) / 2, GAP), ((40 + GAP) / 2, GAP)]
        assert (drawing.width, drawing.height) == (80.0 + GAP, 10.0 + 2 * GAP)

    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are shared
    @given(st.lists(st.lists(st.integers(0, 100), max_size=3), min_size=1, max_size=14))
    def test_no_box_lies_on_another_and_all_lie_inside(self, numbers: list[list[int]]) -> None:
        before = [sorted({number % index for number in found}) if index else [] for index, found in enumerate(numbers)]
        drawing: Drawing[int] = arrange(stream_tree(range(len(before)), before), self.size)
        assert sorted(box.item for box in drawing.boxes) == list(range(len(before)))
        for one, other in combinations(drawing.boxes, 2):
            assert abs(one.x - other.x) >= 40.0 or abs(one.y - other.y) >= 10.0
        for box in drawing.boxes:
            assert abs(box.x) + 20.0 <= drawing.width / 2
            assert 0.0 <= box.y <= drawing.height - 10.0
        top = {box.item: box.y for box in drawing.boxes}
        assert all(top[source] + 10.0 <= top[index] for index, found in enumerate(before) for source in found)


@pytest.mark.parametrize("model", ["densenet121", "googlenet", "swin_t"])
def test_an_svg_shows_every_unit_in_its_color(graph_of: Graphs, model: str) -> None:
    graph = graph_of(model)
    units = find_units(graph)
    speedups = [None if index % 7 == 0 else 0.5 + index % 5 / 2 for index in range(len(units))]
    root = ElementTree.fromstring(to_svg(graph, units, speedups, "a title"))
    drawn = {}
    for group in root.iter(f"{SVG}g"):
        title, rectangle = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rectangle is not None
        drawn.setdefault((title.text or "").partition(":")[0], []).append(rectangle.get("fill"))
    expected: dict[str, list[str]] = {}
    order = {id(unit): index for index, unit in enumerate(units)}
    for unit in leaves(unit_tree(graph, units)):
        expected.setdefault(unit.name, []).append(speedup_color(speedups[order[id(unit)]]))
    assert {name: sorted(colors) for name, colors in drawn.items()} == {
        name: sorted(colors) for name, colors in expected.items()
    }


def test_names_are_escaped() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module('a<b>&"c\\', nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return next(self.children())(x)

    graph = capture(Model().eval(), (torch.empty(2, 4),), 'x"y')
    units = find_units(graph)
    root = ElementTree.fromstring(to_svg(graph, units, [1.0] * len(units), "<&>"))
    assert root.find(f"{SVG}title").text == "<&>"
    assert 'a<b>&"c\\' in [text.text for text in root.iter(f"{SVG}text")]
    dot = to_dot(graph, units)
    assert r"""digraph "x\"y" {""" in dot
    assert r"""u0 [label="a<b>&amp;\"c\\\nlinear"];""" in dot


def test_dot_has_every_unit_and_dependency(graph_of: Graphs) -> None:
    graph = graph_of("densenet121")
    units = find_units(graph)
    lines = to_dot(graph, units, [2.0] * len(units)).splitlines()
    before, fed = unit_dependencies(graph, units)
    assert sum("[label=" in line and 'fillcolor="#9dc5dd"' in line for line in lines) == len(units)
    assert sum("->" in line for line in lines) == sum(map(len, before)) + len(fed)


def tree_leaves(tree: Any) -> Iterator[int]:
    if isinstance(tree, int):
        yield tree
        return
    for child in next(iter(tree.values())):
        yield from tree_leaves(child)


def test_json_says_what_the_graph_says(graph_of: Graphs) -> None:
    graph = graph_of("densenet121")
    units = find_units(graph)
    record = json.loads(to_json(graph, units))
    assert (record["schema"], record["name"], record["module_calls"]) == (1, "densenet121", graph.calls.modules)
    assert [item["name"] for item in record["ops"]] == [op.name for op in graph.ops]
    assert record["values"][0] == {
        "name": "x",
        "role": "input",
        "type": {"dtype": "float32", "shape": [1, 3, 224, 224], "layout": "nchw"},
    }
    first = record["ops"][0]
    assert first["args"]["input"] == {"value": "x", "index": 0}
    assert first["args"]["stride"] == [2, 2]
    assert [unit["ops"] for unit in record["units"]] == [[op.name for op in unit.ops] for unit in units]
    assert sorted(tree_leaves(record["tree"])) == list(range(len(units)))


def test_json_has_no_number_that_json_lacks() -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x > 0, float("-inf"))

    graph = capture(Masked().eval(), (torch.empty(4),))
    record = json.loads(to_json(graph, find_units(graph)))
    assert record["ops"][-1]["args"]["value"] == "-inf"
