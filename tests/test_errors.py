"""Messages of foreign exceptions, whatever they hold."""

from __future__ import annotations

import pytest

from costmodel.errors import MOST_CHARACTERS, first_line, own_words, text_of


class MutedError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class OddText(str):
    """Text that claims to be another."""

    def __str__(self) -> str:
        return "other"

    def __len__(self) -> int:
        return 0


class OddError(Exception):
    def __str__(self) -> str:
        return OddText("true")


@pytest.mark.parametrize(("text", "line"), [("", ""), ("a\nb", "a"), ("\n \n  a b \nc", "a b "), ("  \n", "")])
def test_the_first_line_is_the_first_that_says_something(text: str, line: str) -> None:
    assert first_line(text) == line


def test_a_message_is_cut_where_it_is_too_long() -> None:
    longest = "x" * MOST_CHARACTERS
    assert text_of(ValueError(longest)) == longest
    assert text_of(ValueError(longest + "y")) == f"{longest} ..."


def test_a_message_that_cannot_be_shown_is_replaced() -> None:
    assert text_of(MutedError()) == "(its message cannot be shown)"
    assert own_words(MutedError()) == "MutedError: (its message cannot be shown)"
    assert text_of(OddError()) == "true"


def test_an_exception_is_named_on_one_line() -> None:
    assert own_words(ValueError("a\n  b\tc")) == "ValueError: a b c"
    assert own_words(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert own_words(ValueError(" ")) == "ValueError"
