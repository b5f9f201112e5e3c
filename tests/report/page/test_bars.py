"""Bars and intervals as geometry."""

from __future__ import annotations

import math

import pytest

from costmodel.report.page.bars import Bar, linear_bar, ratio_axis, ratio_bar


def test_a_bar_is_its_share_of_the_longest() -> None:
    assert linear_bar(5.0, 2.5, 10.0, 20.0) == Bar(at=25.0, low=12.5, high=50.0)


@pytest.mark.parametrize("bound", [None, math.nan, math.inf])
def test_a_bar_without_an_interval_has_no_whisker(bound: float | None) -> None:
    assert linear_bar(5.0, bound, bound, 20.0) == Bar(25.0, 25.0, 25.0)


def test_no_bar_is_longer_than_the_chart_or_without_one() -> None:
    assert linear_bar(30.0, -1.0, 40.0, 20.0) == Bar(100.0, 0.0, 100.0)
    assert linear_bar(1.0, None, None, 0.0) == Bar(0.0, 0.0, 0.0)


def test_an_axis_reaches_the_largest_ratio_or_a_quarter_beyond_one() -> None:
    assert ratio_axis([2.0, 0.25, None, math.inf, 0.0]) == pytest.approx(math.log(4.0))
    assert ratio_axis([1.1]) == ratio_axis([]) == pytest.approx(math.log(1.25))


def test_ratios_lie_on_a_logarithmic_axis() -> None:
    """From 1/2 to 8, four doublings: 1 at a quarter, 2 at a half, 4 at three quarters."""
    span, least = math.log(8.0), math.log(2.0)
    assert ratio_bar(2.0, 1.0, 4.0, span, least) == Bar(at=50.0, low=25.0, high=75.0, one=25.0)
    assert ratio_bar(0.5, None, None, span, least).at == 0.0
