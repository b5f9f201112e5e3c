"""Frames that take room on Python's stack; docs/accuracy.md's table of depths is that of the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from costmodel.python_stack import ROOM, framed, with_room
from costmodel.scores import replace_section
from tests.scripts import load_script

ROOT = Path(__file__).parent.parent
CHUNK, SPARE = 16 * 1024, 1000
"""Of CPython: bytes of a chunk of the stack, doubled until a frame and some spare slots fit."""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("stack_depth")


def depth() -> int:
    return sys._getframe().f_back.f_code.co_stacksize  # type: ignore[union-attr]


def test_the_caller_has_the_frame_that_was_asked_for():
    assert framed(depth, 777)() == 777
    assert with_room(depth)() == ROOM


def test_half_a_chunk_is_left():
    chunk = CHUNK
    while chunk < 8 * (ROOM + SPARE):
        chunk *= 2
    assert chunk - 8 * ROOM == 134_144  # of 262,144 bytes: more than eight chunks as they are without


def test_arguments_results_and_errors_pass():
    assert with_room(divmod)(7, 2) == (3, 1)
    assert with_room(sorted)([2, 3, 1], reverse=True) == [3, 2, 1]
    with pytest.raises(ZeroDivisionError):
        with_room(divmod)(1, 0)


def test_a_decorated_function_keeps_its_name_and_itself():
    def kept(x: int) -> int:
        """Says so."""
        return x

    made = with_room(kept)
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("kept", "Says so.", kept)  # type: ignore[attr-defined]


def test_deep_calls_go_through():
    def down(steps: int) -> int:
        return 0 if steps == 0 else 1 + down(steps - 1)

    assert with_room(down)(700) == 700


def test_shares_by_hand(script: ModuleType):
    row = {"eager_us": [1000.0, 1000.0, 1300.0, 1100.0], "eager_with_room_us": 990.0}
    found = script.shares(row, "eager")  # median 1050; of the four only 1300 is above 1260
    assert found == pytest.approx({"with room": 0.99, "usual": 1.05, "worst": 1.3, "slow": 0.25})


@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_measures_every_depth(script: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(script, "SLOTS", (10, 42))
    monkeypatch.setattr(script, "CALLS", 1)
    row = script.measure({"model": "alexnet", "batch_size": 1, "precision": "float32", "layout": "nchw"}, "cpu")
    for way in script.WAYS:
        assert len(row[f"{way}_us"]) == 2
        assert min(*row[f"{way}_us"], row[f"{way}_with_room_us"]) > 0.0


def test_the_page_has_the_table_of_the_file(script: ModuleType):
    rows = json.loads((ROOT / "docs" / "stack_depth_h200.json").read_text())["rows"]
    page = ROOT / "docs" / "accuracy.md"
    assert replace_section(page, script.table(rows), script.BEGIN, script.END) == page.read_text(encoding="utf-8")
