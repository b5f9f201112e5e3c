"""The shipped list of models that are one graph."""

from __future__ import annotations

import importlib.resources
import json

import pytest

from costmodel.zoo import one_graph
from tests.support.scripts import load_script


def test_the_list_ships_with_the_package():
    found = json.loads(importlib.resources.files("costmodel.zoo").joinpath("one_graph.json").read_text())
    assert all(names == sorted(set(names)) for names in found.values())
    assert "resnet50" in found["2.13"]


def test_models_are_known_by_release(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(one_graph, "_known", lambda: {"2.13": frozenset({"resnet50"})})
    monkeypatch.setattr("torch.__version__", "2.13.1+cpu")
    assert one_graph.is_known("resnet50")
    assert not one_graph.is_known("net.py:build")
    monkeypatch.setattr("torch.__version__", "2.14.0")
    assert not one_graph.is_known("resnet50")


def test_other_releases_and_models_stay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend("scripts")
    script = load_script("one_graph")
    table = {"2.12": ["a"], "2.13": ["b", "c"]}
    outcomes = {"c": "2 graphs, 2 compiled, 1 breaks", "d": script.WHOLE}
    assert script.updated(table, "2.13", outcomes) == {"2.12": ["a"], "2.13": ["b", "d"]}
    assert table == {"2.12": ["a"], "2.13": ["b", "c"]}


def test_the_first_models_of_each_family(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend("scripts")
    script = load_script("one_graph")
    names = ["timm:convnextv2_tiny", "timm:convnext_base", "timm:nosuch", "timm:convnext_tiny"]
    assert sorted(script.popular_timm_names(names)) == [
        "timm:convnext_base",
        "timm:convnext_tiny",
        "timm:convnextv2_tiny",
    ]
