"""Sizes of exported programs: arithmetic by hand, and the ends of 64 bits on both sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from costmodel.zoo.bounded import LARGEST, add_sizes, multiply_sizes, raise_size


def test_arithmetic_within_64_bits():
    assert (add_sizes(2, 3), multiply_sizes(4, 0.5), raise_size(3, 4)) == (5, 2.0, 81)
    assert (add_sizes(LARGEST, 0), add_sizes(-LARGEST, 0), multiply_sizes(-LARGEST, 1)) == (LARGEST, -LARGEST, -LARGEST)
    assert raise_size(1, 64) == raise_size(1, -64) == 1


@pytest.mark.parametrize(
    ("function", "first", "second"),
    [
        (add_sizes, LARGEST, 1),
        (add_sizes, -LARGEST, -1),
        (multiply_sizes, 2**40, 2**40),
        (multiply_sizes, -(2**40), 2**40),
        (raise_size, 2, 64),
        (raise_size, -3, 41),  # -3.6e19
    ],
)
def test_larger_results_are_refused(function: Callable[..., float], first: int, second: int):
    with pytest.raises(OverflowError, match="larger than 64 bits"):
        function(first, second)


@pytest.mark.parametrize("exponent", [65, -65, 10**9, float("nan")])
def test_large_exponents_are_refused_before_they_are_computed(exponent: float):
    with pytest.raises(OverflowError, match="raised to the power"):
        raise_size(9, exponent)


@pytest.mark.parametrize("function", [add_sizes, multiply_sizes, raise_size])
def test_other_operands_are_refused(function: Callable[..., object]):
    for operands in (("a", 3), (3, "a"), ([1], 2)):
        with pytest.raises(TypeError, match="arithmetic with sizes is given a"):
            function(*operands)
