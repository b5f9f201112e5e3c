"""Progress: on a terminal only, on standard error, and no change to the work."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from costmodel.report.progress import busy, progress_bar, tracked

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in place of standard error; no fixture, because pytest sets the stream anew before a test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_a_bar_counts_the_items(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = on_terminal(monkeypatch)
    assert list(tracked(iter("abc"), "predicting model", 3)) == ["a", "b", "c"]
    shown = terminal.getvalue()
    assert all(f"predicting model {done}/3" in shown for done in range(4))
    assert capsys.readouterr().out == ""


def test_the_total_is_the_length_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    list(tracked([1, 2], "case"))
    list(tracked(iter("a"), "block"))
    assert "case 2/2" in terminal.getvalue()
    assert "block 1 " in terminal.getvalue()


def test_a_description_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress_bar(has_estimate=False) as update:
        update(1, 2, "[/red] \x1b]0;title\x07")
    assert r"[/red] \x1b]0;title\x07" in terminal.getvalue()


def test_quiet_and_what_is_no_terminal_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    assert list(tracked("ab", "model", quiet=True)) == ["a", "b"]
    with busy("planning", quiet=True):
        pass
    assert terminal.getvalue() == ""
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        assert list(tracked("ab", "model")) == ["a", "b"]
        with busy("planning"):
            pass
    assert terminal.getvalue() == ""


def test_nothing_is_imported_where_nothing_is_shown() -> None:
    code = "import sys; from costmodel.report.progress import tracked; list(tracked('ab', 'm')); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "rich" not in done.stdout.split()
