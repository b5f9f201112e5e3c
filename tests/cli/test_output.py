"""Targets of results: standard output whose reader has gone or that is closed, files, pipes and directories."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from costmodel.cli import output, streams
from costmodel.cli.output import opened, running_user_code, use_color
from costmodel.errors import RequestError


def failing(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def write(text: str) -> None:
        raise error

    monkeypatch.setattr(streams, "write_result", write)


def test_a_reader_that_has_gone_needs_no_more(monkeypatch: pytest.MonkeyPatch):
    failing(monkeypatch, BrokenPipeError(errno.EPIPE, "Broken pipe"))
    with opened(None) as write:
        write("text")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EBADF, "Bad file descriptor"), r"^standard output is closed; give -o FILE$"),
        (OSError(errno.ENOSPC, "No space left"), r"^cannot write to standard output: No space left$"),
    ],
)
def test_other_failures_of_standard_output_are_refused(monkeypatch: pytest.MonkeyPatch, error: OSError, said: str):
    failing(monkeypatch, error)
    with pytest.raises(RequestError, match=said), opened(None) as write:
        write("text")


@pytest.mark.parametrize("name", [None, Path("/dev/stdout"), Path("/dev/fd/1")])
def test_standard_output_by_any_name(name: Path | None, monkeypatch: pytest.MonkeyPatch):
    written: list[str] = []
    monkeypatch.setattr(streams, "write_result", written.append)
    with opened(name) as write:
        write("text")
    assert written == ["text"]


def test_a_file_appears_at_the_end_and_only_without_an_error(tmp_path: Path):
    path = tmp_path / "result"
    path.write_text("before")
    with suppress(KeyError), opened(path) as write:
        write("half")
        raise KeyError
    assert path.read_text() == "before"
    with opened(path) as write:
        write("one ")
        write("two\udc80")
        assert path.read_text() == "before"
    assert path.read_text() == "one two\\udc80"
    with opened(tmp_path / "nothing"):
        pass
    assert not (tmp_path / "nothing").exists()


def test_what_cannot_be_written_is_refused_before_any_work(tmp_path: Path):
    for path in (tmp_path, tmp_path / "missing" / "file"):
        with pytest.raises(RequestError, match=f"^cannot write {path}: "), opened(path):
            pytest.fail("nothing is computed for a result that cannot be written")


def test_a_note_is_said_unless_the_user_asked_for_quiet(monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    monkeypatch.setattr(streams, "say", said.append)
    output.note("first", quiet=False)
    output.note("second", quiet=True)
    assert said == ["costmodel: first"]


@pytest.mark.parametrize(
    ("width", "variables", "colored"),
    [
        (80, {}, True),
        (None, {}, False),
        (80, {"NO_COLOR": ""}, False),
        (80, {"TERM": "dumb"}, False),
        (80, {"TERM": "xterm"}, True),
    ],
)
def test_colors_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, width: int | None, variables: dict[str, str], colored: bool
):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert use_color(width) is colored


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SystemExit(3), RequestError),
        (BrokenPipeError(), RequestError),
        (GeneratorExit(), RequestError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ValueError("x"), ValueError),
        (RequestError("x"), RequestError),
    ],
)
def test_a_models_code_cannot_end_the_process(error: BaseException, expected: type[BaseException]):
    with pytest.raises(expected), running_user_code("net"):
        raise error


def test_a_models_code_leaves_the_working_directory_and_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import os
    import sys

    monkeypatch.chdir(tmp_path)
    depth = sys.getrecursionlimit()
    (tmp_path / "inner").mkdir()
    with running_user_code("net"):
        assert sys.getrecursionlimit() >= output.MOST_FRAMES
        os.chdir("inner")
    assert Path.cwd() == tmp_path
    assert sys.getrecursionlimit() == depth
