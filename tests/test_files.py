"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from costmodel.files import check_writable, replacing, write_whole


def test_a_file_takes_the_place_of_what_was_there_and_its_permissions(tmp_path: Path):
    path = tmp_path / "a.json"
    write_whole(path, "older")
    path.chmod(0o640)
    write_whole(path, "newer \N{GREEK SMALL LETTER MU}s")
    assert path.read_bytes() == b"newer \xce\xbcs"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_permissions_of_any_other(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", b"\x00")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_what_was_there_stays_when_writing_fails(tmp_path: Path):
    path = tmp_path / "a"
    path.write_text("older")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"half {1 / 0}")
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_goes_on_pointing_where_it_did(tmp_path: Path):
    target, link = tmp_path / "elsewhere" / "a", tmp_path / "link"
    target.parent.mkdir()
    target.write_text("older")
    link.symlink_to(target)
    write_whole(link, "newer")
    assert link.is_symlink()
    assert target.read_text() == "newer"


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "a", "text")


def test_a_path_means_the_directory_of_the_time_when_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    with replacing(Path("a")) as temporary:
        os.chdir("sub")
        temporary.write_text("text")
    assert (tmp_path / "a").read_text() == "text"
    assert not list((tmp_path / "sub").iterdir())


def test_whether_a_path_can_be_written_leaves_no_trace(tmp_path: Path):
    check_writable(tmp_path / "a")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        check_writable(tmp_path / "none" / "a")


def test_a_loop_of_links_is_an_error(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        check_writable(tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


def test_a_pipe_is_written_to_and_stays(tmp_path: Path):
    """Renaming a file over /dev/null would replace it for every program of the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "plan")
        assert os.read(reader, 100) == b"plan"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
