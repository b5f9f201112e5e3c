"""The module tree as rows, and the row of each layer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.report.module_tree import ModuleNode
from costmodel.report.page.rows import Rows, Words, short
from tests.support.page_reports import SMALL, with_layers


def node(name: str, label: str, *children: ModuleNode, count: int = 1) -> ModuleNode:
    figures = (1, 2, 3.0, 1.5, 2.0, 1.8, 2.2, "memory", "fused", 0.0)
    return ModuleNode(name, label, "Block", "", (), (1, 8), *figures, count, children)


BLOCK = node("net.layers.0", "0..11", node("net.layers.0.attn", "attn", count=12), count=12)
TREE = node("", "model", node("net", "net", node("net.layers", "layers", BLOCK), node("net.head", "head")))


def test_rows_are_the_tree_with_parents_first() -> None:
    words = Words()
    columns = Rows(TREE, words).columns
    names = [words.texts[index] for index in columns["name"]]
    assert names == ["", "net", "net.layers", "net.layers.0", "net.layers.0.attn", "net.head"]
    assert columns["parent"] == [-1, 0, 1, 2, 3, 1]
    assert columns["count"] == [1, 1, 1, 12, 12, 1]
    assert {words.texts[index] for index in columns["shape"]} == {"1×8"}
    assert columns["eager"] == [3] * 6


@pytest.mark.parametrize(
    ("layer", "row"),
    [
        ("net.head", 5),
        ("net.layers.7", 3),
        ("net.layers.7.attn", 4),
        ("net.layers.7.attn.inner", 4),
        ("net.layers.12.attn", 2),  # not one of the twelve
        ("net.layers.x7", 2),
        ("mean", 0),
        ("", 0),
    ],
)
def test_a_layer_has_the_row_of_its_module_or_of_the_first_like_it(layer: str, row: int) -> None:
    rows = Rows(TREE, Words())
    assert rows.place_of(layer) == row
    assert rows.has(layer) == (layer in ("", "net.head"))


def test_times_of_rows_add_up() -> None:
    columns = Rows(with_layers(SMALL).tree(), Words()).columns
    for place, total in enumerate(columns["eager"]):
        inside = [us for us, parent in zip(columns["eager"], columns["parent"], strict=True) if parent == place]
        assert not inside or sum(inside) == pytest.approx(total, rel=1e-3)
    assert columns["eager"][0] == 110


def test_words_are_kept_once_without_control_characters() -> None:
    words = Words()
    assert [words(text) for text in ("a", "\x1b", "a", r"\x1b")] == [0, 1, 0, 1]
    assert words.texts == ["a", r"\x1b"]


@given(st.floats(-1e300, 1e300))
def test_a_short_number_is_close_and_finite(value: float) -> None:
    assert short(value) == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1.7976e308])  # the last would round up to infinity
def test_what_json_has_no_number_for_is_none(value: float) -> None:
    assert short(value) is None


@pytest.mark.parametrize(("value", "text"), [(123456.0, "123500"), (0.123456, "0.1235"), (5.0, "5"), (None, "None")])
def test_four_significant_digits(value: float | None, text: str) -> None:
    assert str(short(value)) == text
