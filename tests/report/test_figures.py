"""Figures as text, by hand."""

from __future__ import annotations

import math

import pytest

from costmodel.report import figures


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (15000, "15,000 calls"), (math.inf, "never")]
)
def test_calls_to_break_even(value: float, text: str) -> None:
    assert figures.calls(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00"), (59.6, "01:00"), (120, "02:00"), (3599, "59:59"), (3720, "1:02:00")]
)
def test_durations(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0.0"), (2**20, "1.0"), (3 * 2**19, "1.5"), (2**40, "1,048,576.0")])
def test_mebibytes(nbytes: int, text: str) -> None:
    assert figures.mebibytes(nbytes) == text
    assert figures.gibibytes(nbytes * 1024) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0.0"), (0.0952, "0.095"), (0.996, "1.0"), (2.04, "2.0"), (9.96, "10"), (1234.0, "1,200")]
)
def test_seconds_have_two_significant_digits(value: float, text: str) -> None:
    assert figures.seconds(value) == text


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ((9100, 31000), "9,100-31,000"),
        ((9100, figures.NEVER), "9,100-never"),
        ((figures.NEVER, figures.NEVER), ""),
        ((None, None), ""),
    ],
)
def test_an_interval_of_calls_may_end_at_never(bounds: figures.Interval, text: str) -> None:
    assert figures.calls_interval(bounds) == text


def test_an_interval_needs_both_bounds() -> None:
    assert figures.ratio_interval((1.4, 1.6)) == "1.40-1.60"
    assert figures.time_interval((9.5, 12.0)) == "9.500-12.00"
    assert figures.time_interval((9.5, None)) == figures.ratio_interval((None, 1.0)) == ""


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_a_dash(value: float | None) -> None:
    formats = (
        figures.number,
        figures.tenths,
        figures.whole,
        figures.gibibytes,
        figures.times,
        figures.percent,
        figures.scientific,
    )
    assert {form(value) for form in (*formats, figures.milliseconds, figures.seconds, figures.mebibytes)} == {"-"}


def test_shares_and_small_numbers() -> None:
    assert figures.percent(-0.2) == "-20.0%"
    assert figures.scientific(2e-4) == "2.0e-04"
    assert figures.whole(1234.5) == "1,234"  # half to even
