"""Reports in notebooks and at the prompt."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tests.support.sample_trees import network


def test_repr_is_one_line() -> None:
    assert repr(network()) == (
        "<costmodel.Report tiny on some-gpu, 2x3x8x8 float32: compile, reduce-overhead 2.000 ms, 3.00x (2.75-3.25)>"
    )
    assert "\n" not in repr(replace(network(), model="a\nb"))


def test_a_notebook_shows_the_answer_and_the_modules() -> None:
    text = network()._repr_html_()
    marks = [
        "compile: reduce-overhead is fastest",
        "torch.compile(model, mode=",
        "637 k parameters",
        "images/s",
        "0..2",
    ]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert "<script" not in text
    assert "http" not in text
    assert len(text) < 20_000


@given(st.text())
def test_names_are_text(name: str) -> None:
    layers = tuple(replace(layer, reason=name, kind=name) for layer in network().layers)
    report = replace(network(), model=name, layers=layers, warnings=(name,))
    found = ElementTree.fromstring(report._repr_html_().replace("<br>", ""))
    assert {element.tag for element in found.iter()} <= {
        *("div", "style", "p", "b", "pre", "table", "thead", "tbody", "tr", "th", "td")
    }


def test_frames_have_a_row_a_mode_and_a_kernel() -> None:
    modes, kernels = network().to_frame("modes"), network().to_frame("kernels")
    assert list(modes["mode"]) == ["eager", "default", "reduce-overhead"]
    assert modes["latency_ms"].sum() == 12.0
    assert list(kernels.columns)[:3] == ["mode", "name", "layers"]
    assert len(kernels) == 0
