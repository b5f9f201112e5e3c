"""Names that a model, a file or an error may have, through everything that shows them."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from torch import nn

from costmodel.capture.trace import capture
from costmodel.cli import main
from costmodel.cli.output import note
from costmodel.drawing import to_dot, to_json, to_svg
from costmodel.drawing.labels import shortened
from costmodel.ir import Graph, parse
from costmodel.prediction.layers import Unit, find_units
from costmodel.report import render
from costmodel.report.escape import csv_cell, dot, markdown, markup, terminal, unicode_text
from costmodel.report.progress import busy
from costmodel.streamit import Filter, streamit
from tests.support.nasty_names import nasty_names
from tests.support.sample_reports import KINDS, rendered, report

Draw = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
kinds = st.sampled_from(KINDS)


def named(name: str) -> Callable[[str], str]:
    """The same name everywhere."""
    return lambda _: name


def is_plain(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def cells(text: str) -> Iterator[str]:
    for row in csv.reader(io.StringIO(text, newline=""), strict=True):
        yield from row


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("features.0", "features.0"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\x00\x9b", r"a\nb\x00\x9b"),
        ("\u202eabc\u200b\ud800", r"\u202eabc\u200b\ud800"),
        ("é字🙂", "é字🙂"),
    ],
)
def test_terminal(text: str, shown: str) -> None:
    assert terminal(text) == shown


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (-1.5, -1.5),
        (None, None),
        (True, True),
        ("conv1", "conv1"),
        ("a=b", "a=b"),
        ("", ""),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        (" =1", "' =1"),
        ("\uff1d1", "'\uff1d1"),  # a full-width equals sign
        ("\t=1", r"\t=1"),
        ("\r=1", r"\r=1"),
    ],
)
def test_csv_cell(value: object, cell: object) -> None:
    assert csv_cell(value) == cell


def test_dot_and_markdown_and_markup_by_hand() -> None:
    assert dot('a"b', "c\\N&lt;") == r'"a\"b\nc\\N&amp;lt;"'
    assert markdown("a|b `c` <d> &lt;") == r"a\|b \`c\` \<d\> \&lt;"
    assert markup("<a href='x'>&\x1b") == r"&lt;a href=&#x27;x&#x27;&gt;&amp;\x1b"


@Draw
@given(kinds, nasty_names(), nasty_names())
def test_a_table_holds_nothing_that_a_terminal_acts_on(kind: str, name: str, other: str) -> None:
    text = rendered(kind, "table", lambda usual: name if len(usual) % 3 == 1 else other)
    assert is_plain(text)
    assert terminal(name).strip() in text


@Draw
@given(kinds, nasty_names())
def test_csv_reads_back_and_no_cell_is_a_formula(kind: str, name: str) -> None:
    found = set(cells(rendered(kind, "csv", named(name))))
    assert csv_cell(name) in found
    assert not [cell for cell in found if cell.lstrip(" ")[:1] in {"=", "+", "-", "@", "\t", "\r", "\n"} - {""}]
    assert all(map(str.isprintable, found))


def test_csv_keeps_negative_numbers() -> None:
    usual = report()
    negative = replace(usual, modes={"eager": replace(usual.modes["eager"], host_ms=-2.5)})
    assert "-2.5" in set(cells(render(negative, "csv")))


@Draw
@given(kinds, nasty_names())
def test_html_is_well_formed_and_says_the_name(kind: str, name: str) -> None:
    usual = ElementTree.fromstring(rendered(kind, "html"))
    root = ElementTree.fromstring(rendered(kind, "html", named(name)))
    assert [element.tag for element in root.iter()] == [element.tag for element in usual.iter()]
    assert terminal(name) in "".join(root.itertext())


@Draw
@given(kinds, nasty_names())
@example("report", "a|b\\|c")
@example("report", "\\")
def test_markdown_shows_the_name_as_text(kind: str, name: str) -> None:
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    usual = ElementTree.fromstring(f"<x>{parser.render(rendered(kind, 'md'))}</x>")
    text = rendered(kind, "md", named(name))
    assert is_plain(text)
    root = ElementTree.fromstring(f"<x>{parser.render(text)}</x>")
    assert [element.tag for element in root.iter()] == [element.tag for element in usual.iter()]
    assert terminal(name).strip() in "".join(root.itertext())


@Draw
@given(kinds, nasty_names())
def test_json_is_valid_and_keeps_the_name(kind: str, name: str) -> None:
    text = rendered(kind, "json", named(name))
    assert is_plain(text)
    record = json.loads(text)
    json.dumps(record, ensure_ascii=False).encode()  # no lone surrogates
    if kind == "cases":
        record = record[0]
    if kind == "comparison":
        record = record["cases"][0]["before"]
    assert record["model"] == unicode_text(name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_very_long_name_hides_no_figure(kind: str) -> None:
    name = "x" * 30_000
    text = rendered(kind, "table", named(name))
    assert name in text
    assert all(figure in text for figure in re.findall(r"(?<!\S)\d[\d.,x%-]*(?!\S)", rendered(kind, "table")))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_very_long_name_hides_no_figure_on_a_terminal(width: int) -> None:
    text = render(report(named("x" * 30_000)), width=width)
    words = " ".join(text.split())
    for shown in ("6.000", "1.50x", "2.75-3.25", "8,100 calls", "extrapolated"):
        assert shown in words


def model_of(name: str) -> nn.Module:
    """A module with a submodule of any name, which `add_module` would refuse in part."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for child in self.children():
                x = child(x)
            return x

    model = Model()
    model._modules[name] = nn.Linear(4, 4)
    return model.eval()


def captured(name: str) -> tuple[Graph, tuple[Unit, ...]]:
    graph = capture(model_of(name), (torch.empty(2, 4),), name)
    return graph, find_units(graph)


@settings(Draw, max_examples=15)
@given(nasty_names().filter(lambda name: "." not in name))  # torch itself takes a dot for a module within a module
def test_drawings_of_a_module_of_that_name(name: str) -> None:
    graph, units = captured(name)
    root = ElementTree.fromstring(to_svg(graph, units, [1.0] * len(units), name))
    tags = {"svg", "title", "style", "rect", "text", "g", "path"}
    assert {element.tag.partition("}")[2] for element in root.iter()} <= tags
    texts = [element.text for element in root.iter()]
    assert shortened(name) in texts
    assert shortened(units[0].name) in texts
    drawn = to_dot(graph, units)
    assert is_plain(drawn)
    assert read_dot(drawn.partition("\n")[0].removeprefix("digraph ").removesuffix(" {")) == shortened(name)
    assert json.loads(to_json(graph, units))["units"][0]["name"] == unicode_text(units[0].name)
    assert is_plain(str(graph))
    assert parse(str(graph)) == graph


def read_dot(text: str) -> str:
    """Read a quoted string of one line as Graphviz does."""
    assert re.fullmatch(r'"(?:[^"\\]|\\["\\])*"', text)
    return unescape(re.sub(r"\\(.)", r"\1", text[1:-1]))


def test_a_long_name_is_shortened_in_drawings_alone() -> None:
    name = "a" * 500 + "z"
    graph, units = captured(name)
    assert shortened(name) == "a" * 49 + "..." + "a" * 47 + "z"  # 100 characters
    root = ElementTree.fromstring(to_svg(graph, units, [1.0], "t"))
    assert float(root.get("width", "")) < 1000
    assert any(name in (element.text or "") for element in root.iter())  # the tooltip has it whole
    assert json.loads(to_json(graph, units))["units"][0]["name"] == name


@Draw
@given(nasty_names())
def test_streamit_text_is_plain(name: str) -> None:
    assert is_plain(streamit(Filter(name, 1, 1, 1)))


@Draw
@given(st.text("\x1b\n\x00\u202ea ", min_size=1))
def test_a_note_is_one_plain_line(text: str) -> None:
    said = io.StringIO()
    before, sys.stderr = sys.stderr, said
    try:
        note(text, quiet=False)
    finally:
        sys.stderr = before
    assert said.getvalue() == terminal(" ".join(f"costmodel: {text}".split())) + "\n"


def read_until_closed(descriptor: int) -> bytes:
    """Read what has arrived at a pseudo-terminal; nothing where its other side is closed and all is read."""
    try:
        return os.read(descriptor, 10_000)
    except OSError:
        return b""


@pytest.mark.parametrize("name", ["[/red]", "[bold]", "\x1b]0;title\x07"])
def test_what_is_being_done_is_no_markup(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main_side, side = pty.openpty()
    with os.fdopen(side, "w") as terminal_file:
        monkeypatch.setattr(sys, "stderr", terminal_file)
        with busy(f"planning {name}", quiet=False):
            pass
        monkeypatch.undo()
    shown = b"".join(iter(lambda: read_until_closed(main_side), b"")).decode()
    os.close(main_side)
    assert f"planning {terminal(name)} ..." in shown


NET = """
import torch
from torch import nn
NAME = {name!r}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self._modules[NAME] = nn.Conv2d(3, 8, 3)
    def forward(self, x):
        return self._modules[NAME](x)
class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("seen \\x1b[31m" + NAME + "\\nsecond line")
def broken():
    raise ValueError("made \\x1b[31m" + NAME)
"""


@pytest.mark.parametrize("form", ["ir", "units", "streams", "streamit", "dot", "json", "svg"])
def test_every_form_of_a_graph(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(NET.format(name="\x1b]0;t\x07<&>\"'|=\u202e\ud800"))
    monkeypatch.chdir(tmp_path)
    assert main(["ir", "net.py:Net", "--as", form, "-q"]) == 0
    assert is_plain(capsys.readouterr().out)


@pytest.mark.parametrize("which", ["Raises", "broken", "absent\x1b[31m"])
@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("more", [[], ["alexnet\x1b[0m"]])
def test_an_error_reaches_the_terminal_as_one_plain_line(
    which: str,
    debug: list[str],
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "net.py").write_text(NET.format(name="\u202e\x9b1m"))
    monkeypatch.chdir(tmp_path)
    assert main(["predict", f"net.py:{which}", *more, "-q", *debug]) == 2
    said = capsys.readouterr().err
    assert is_plain(said)
    assert said.count("costmodel: error: ") == 1 + len(more)
    assert r"\x1b[31m" in said
    if not debug:
        assert said.count("\n") == 1 + len(more)


def test_an_unknown_option_is_quoted_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--\x1b[31m"]) == 2
    assert is_plain(capsys.readouterr().err)
