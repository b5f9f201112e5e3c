"""Predictions in terminals of every width: whole pages that a reader has looked at, and what holds at any width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from costmodel.report import SORTS, render
from costmodel.report.advice import code_to_paste
from costmodel.report.size_text import scaled
from tests.support.sample_trees import network

CODE = '    model = torch.compile(model, mode="reduce-overhead")'


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_page_reads_as_it_did(golden: Callable[[str, str], None], width: int) -> None:
    text = render(network(), width=width, unicode=True)
    assert all(cell_len(line) <= width for line in text.splitlines() if line != CODE)
    golden(f"terminal/{width}", text.removesuffix("\n"))


def test_a_pipe_without_unicode(golden: Callable[[str, str], None]) -> None:
    text = render(network())
    assert text.isascii()
    golden("terminal/pipe", text.removesuffix("\n"))


@pytest.mark.parametrize("sort", SORTS)
def test_orders_of_siblings(golden: Callable[[str, str], None], sort: str) -> None:
    golden(f"terminal/{sort}", render(network(), width=100, sort=sort, depth=1).removesuffix("\n"))


def test_colours_mark_gains_and_losses_and_nothing_else_changes() -> None:
    plain, coloured = render(network(), width=100), render(network(), width=100, color=True)
    assert "\x1b[32m" in coloured  # green: a gain
    assert "\x1b[31m" in coloured  # red: the concatenations lose
    assert (
        "".join(part.partition("m")[2] if index else part for index, part in enumerate(coloured.split("\x1b[")))
        == plain
    )


@given(st.integers(12, 200), st.booleans(), st.sampled_from((None, *SORTS)), st.integers(1, 20), st.integers(1, 4))
def test_no_line_is_longer_than_the_terminal(width: int, unicode: bool, sort: str | None, top: int, depth: int) -> None:
    text = render(network(), width=width, unicode=unicode, sort=sort, top=top, depth=depth)
    least = 35  # "reduce-overhead", latency and speedup are never cut
    assert all(cell_len(line) <= max(width, least) for line in text.splitlines() if line != CODE)
    assert CODE in text.splitlines()


@pytest.mark.parametrize("layers", ["top", "all"])
def test_a_list_of_layers_in_place_of_the_tree(layers: str) -> None:
    text = render(network(), layers=layers)
    assert "layers (10)" in text
    assert "modules, device time" not in text
    assert "blocks.2.conv" in text


def test_neither_layers_nor_modules() -> None:
    text = render(network(), layers="none")
    assert "stem" not in text
    assert "reduce-overhead" in text


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, CODE.strip()),
        ({"best_mode": "default"}, "model = torch.compile(model)"),
        ({"verdict": "uncertain", "leaning": "compile"}, CODE.strip()),
        ({"verdict": "uncertain", "leaning": "leave"}, ""),
        ({"verdict": "leave", "best_mode": "eager"}, ""),
        ({"best_mode": "plan"}, 'model = costmodel.apply(model, costmodel.Plan.load("plan.json"), inputs)'),
    ],
)
def test_the_line_to_paste(changes: dict[str, str], code: str) -> None:
    assert code_to_paste(replace(network(), **changes)) == code  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "text"), [(11_689_512, "11.7 M"), (2_834_161_664, "2.83 G"), (1_500, "1.5 k"), (999, "999"), (0, "0")]
)
def test_counts_to_three_digits(count: int, text: str) -> None:
    assert scaled(count) == text
