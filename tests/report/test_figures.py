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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (9.9994, "9.999"),
        (10.0, "10.00"),
        (99.99, "99.99"),
        (100.0, "100.0"),
        (-9.5, "-9.500"),
        (-10.0, "-10.00"),
        (-100.0, "-100.0"),
        (12345.0, "12,345.0"),
    ],
)
def test_milliseconds_lose_a_decimal_at_ten_and_at_a_hundred(value: float, text: str) -> None:
    assert figures.milliseconds(value) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.4, 1.6, "1.40-1.60"),
        (91.66, 202.2, "91.66-202"),
        (428.7, 1310.8, "429-999+"),
        (20058.8, 33896.0, ""),
        (0.2, math.inf, ""),
        (None, 2.0, ""),
        (2.0, None, ""),
    ],
)
def test_intervals_of_ratios(low: float | None, high: float | None, text: str) -> None:
    assert figures.ratio_interval((low, high)) == text


def test_numbers_have_two_decimals_unless_others_are_asked_for() -> None:
    assert figures.number(1234.567) == "1,234.57"
    assert figures.number(1234.567, 0) == "1,235"
    assert figures.number(-0.5, 3) == "-0.500"
    assert figures.tenths(9.96) == "10.0"
    assert figures.tenths(1234.56) == "1,234.6"


def test_ratios_and_shares_are_signed_as_they_should_be() -> None:
    assert figures.times(1.5) == "1.50x"
    assert figures.times(99.5) == "99.50x"
    assert figures.times(116.55) == "117x"
    assert figures.times(1234.5) == ">999x"
    assert figures.percent(0.2) == "+20.0%"
    assert figures.percent(0.0) == "+0.0%"
    assert figures.percent(1.2346) == "+123.5%"
    assert figures.scientific(123456.0) == "1.2e+05"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 layers"), (1, "1 layer"), (-1, "-1 layers"), (1200, "1,200 layers")]
)
def test_a_noun_is_in_the_singular_for_one_alone(count: int, text: str) -> None:
    assert figures.counted(count, "layer") == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "00:00"), (59.4, "00:59"), (60, "01:00"), (3599.4, "59:59"), (3599.6, "1:00:00"), (36000, "10:00:00")],
)
def test_durations_round_before_they_are_split(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.01, "0.010"),
        (0.9, "0.90"),
        (1.0, "1.0"),
        (9.94, "9.9"),
        (10.0, "10"),
        (99.4, "99"),
        (99.6, "100"),
        (1e5, "100,000"),
    ],
)
def test_seconds_lose_a_decimal_with_every_digit_before_the_point(value: float, text: str) -> None:
    assert figures.seconds(value) == text


def test_intervals_of_seconds_and_of_calls() -> None:
    assert figures.seconds_interval((9.14, 18.2)) == "9.1-18"
    assert figures.seconds_interval((None, 18.2)) == figures.seconds_interval((9.1, math.inf)) == ""
    assert figures.calls_interval((0, 1)) == "0-1"
    assert figures.calls_interval((None, 5)) == figures.calls_interval((5, None)) == ""
    assert figures.calls(None) == "-"


def test_bytes_are_counted_in_powers_of_two() -> None:
    assert figures.mebibytes(10**6) == "1.0"  # 0.95
    assert figures.mebibytes(-(2**20)) == "-1.0"
    assert figures.gibibytes(2**30 + 2**29) == "1.5"
    assert (figures.MEBIBYTE, figures.GIBIBYTE) == (1024**2, 1024**3)
