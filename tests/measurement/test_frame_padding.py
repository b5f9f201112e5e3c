"""Padding frames on Python's stack."""

from __future__ import annotations

import sys

import pytest

from costmodel.measurement.frame_padding import PADDING_SLOTS, padded, with_frame_padding

CHUNK, SPARE = 16 * 1024, 1000
"""Of CPython: bytes of a chunk of the stack, doubled until a frame and some spare slots fit."""


def depth() -> int:
    return sys._getframe().f_back.f_code.co_stacksize  # type: ignore[union-attr]


def test_the_caller_has_the_frame_that_was_asked_for():
    assert padded(depth, 777)() == 777
    assert with_frame_padding(depth)() == PADDING_SLOTS


def test_half_a_chunk_is_left():
    chunk = CHUNK
    while chunk < 8 * (PADDING_SLOTS + SPARE):
        chunk *= 2
    assert chunk - 8 * PADDING_SLOTS == 134_144  # of 262,144 bytes: more than eight chunks as they are without


def test_arguments_results_and_errors_pass():
    assert with_frame_padding(divmod)(7, 2) == (3, 1)
    assert with_frame_padding(sorted)([2, 3, 1], reverse=True) == [3, 2, 1]
    with pytest.raises(ZeroDivisionError):
        with_frame_padding(divmod)(1, 0)


def test_a_decorated_function_keeps_its_name_and_itself():
    def kept(x: int) -> int:
        """Says so."""
        return x

    made = with_frame_padding(kept)
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("kept", "Says so.", kept)  # type: ignore[attr-defined]


def test_deep_calls_go_through():
    def down(steps: int) -> int:
        return 0 if steps == 0 else 1 + down(steps - 1)

    assert with_frame_padding(down)(700) == 700
