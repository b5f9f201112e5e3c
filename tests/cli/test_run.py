"""Exit statuses and messages of commands, whatever they raise."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from collectors.sweep.settings import Progress
from costmodel.cli import streams
from costmodel.cli.plan import parse_size
from costmodel.cli.predict import parse_shapes
from costmodel.cli.run import message_of, run
from costmodel.cli.sweep_progress import describe
from costmodel.errors import RequestError


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(streams, "say", lines.append)
    return lines


def raising(error: BaseException) -> Any:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(("result", "status"), [(None, 0), (0, 0), (1, 1), ("text", 0)])
def test_a_command_may_return_its_status(said: list[str], result: object, status: int):
    assert run(lambda: result) == status
    assert said == []


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (RequestError("no such model"), 2, "no such model"),
        (ValueError("x"), 2, "this is a bug in costmodel: ValueError: x (--debug shows where)"),
        (OSError(errno.ENOENT, "No such file", "a.txt"), 2, "No such file: a.txt"),
        (OSError(errno.ENOSPC, "No space left"), 2, "No space left"),
        (OSError("odd"), 2, "this is a bug in costmodel: OSError: odd (--debug shows where)"),
        (MemoryError(), 2, "this is a bug in costmodel: MemoryError (--debug shows where)"),
        (KeyboardInterrupt(), 130, None),
        (SystemExit(5), 0, None),
    ],
)
def test_an_error_is_a_line_and_a_status(said: list[str], error: BaseException, status: int, line: str | None):
    assert run(raising(error)) == status
    assert said == ([] if line is None else [f"costmodel: error: {line}"])


def test_a_reader_of_the_help_may_go(monkeypatch: pytest.MonkeyPatch, said: list[str]):
    gone: list[bool] = []
    monkeypatch.setitem(run.__globals__, "abandon_stdout", lambda: gone.append(True))
    assert run(raising(BrokenPipeError())) == 0
    assert (gone, said) == ([True], [])


def test_a_traceback_is_shown_on_demand(said: list[str], capsys: pytest.CaptureFixture[str]):
    run(raising(RequestError("no\x1b")), debug=True)
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback")
    assert "RequestError: no\\x1b" in shown
    run(raising(RequestError("no")))
    assert capsys.readouterr().err == ""


class UsageError(Exception):
    """Stands for an error of typer."""

    def __init__(self, text: str, path: str | None = None) -> None:
        self.text, self.ctx = text, None if path is None else type("Context", (), {"command_path": path})

    def format_message(self) -> str:
        return self.text


def test_errors_of_usage_lead_to_the_help():
    assert message_of(UsageError("No such option.", "costmodel plan")) == "No such option. (see costmodel plan --help)"
    assert message_of(UsageError("No such option.")) == "No such option. (see costmodel --help)"
    assert message_of(UsageError("No such option.", "")) == "No such option. (see costmodel --help)"
    assert message_of(UsageError("")) == ""


@pytest.mark.parametrize(
    ("text", "size"),
    [("1K", 1024), ("512M", 2**29), (" 1.5g ", 3 * 2**29), ("0.5k", 512), ("999999999K", 999999999 * 1024)],
)
def test_sizes_of_memory(text: str, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "1", "K", "0K", "0.0001K", "-1K", "1T", "1 K", "1e3K", "1.K", "1000000000K", "nanK"]
)
def test_other_sizes_are_refused(text: str):
    with pytest.raises(RequestError, match=r"^impossible memory limit .*; give a number above 0 and K, M or G"):
        parse_size(text)


def test_shapes_are_lists_of_sizes():
    assert parse_shapes(None, explain=False) == ()
    assert parse_shapes("8x3,16x3", explain=True) == ((8, 3), (16, 3))
    assert parse_shapes("999999999", explain=True) == ((999999999,),)
    with pytest.raises(RequestError, match=r"^--shapes needs --explain"):
        parse_shapes("8x3", explain=False)


@pytest.mark.parametrize("text", ["", "0x3", "8x", "x3", "8x3,", "8x03", "8X3", "8x3 ,4", "1000000000", "-1"])
def test_other_shapes_are_refused(text: str):
    with pytest.raises(RequestError, match=r"^impossible shapes .*; give sizes like"):
        parse_shapes(text, explain=True)


def test_progress_names_the_round_and_the_time_left():
    """20 units in a minute; 30 cases of 90 in a minute leave two."""
    progress = Progress("measuring", done=30, total=90, seconds=60.0, units=20, round=2)
    assert describe(progress) == "round 2: measuring 30/90 cases, 20 units/min, 02:00 left"
    within = Progress("compiling", done=0, total=9, seconds=0.0, budget_left=61.0)
    assert describe(within) == "compiling 0/9 cases, 0 units/min, 01:01 left"
    assert describe(Progress("choosing", done=0, total=9, seconds=5.0)) == "choosing 0/9 cases, 0 units/min"
