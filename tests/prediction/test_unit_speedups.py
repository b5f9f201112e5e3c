"""Speedups of units, by which drawings colour them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from costmodel.ir import Graph
from costmodel.prediction.layers import find_units
from costmodel.prediction.predict_graph import predict_graph
from costmodel.prediction.unit_speedups import unit_speedups
from costmodel.profiles.profile import Profile


def test_a_unit_of_one_library_call_has_the_speedup_of_its_layer(
    graph_of: Callable[[str], Graph], h200: Profile
) -> None:
    graph = graph_of("alexnet")
    units = find_units(graph, h200.device)
    speedups = unit_speedups(graph, units, h200)
    assert len(speedups) == len(units)
    (unit,) = (place for place, unit in enumerate(units) if unit.name == "classifier.6")
    (layer,) = (layer for layer in predict_graph(graph, h200).layers if layer.name == "classifier.6")
    assert speedups[unit] == pytest.approx(layer.speedup)


def test_a_unit_without_kernels_has_none(graph_of: Callable[[str], Graph], h200: Profile) -> None:
    graph = graph_of("alexnet")
    first, *_ = find_units(graph, h200.device)
    assert unit_speedups(graph, [replace(first, kernels=())], h200) == [None]
