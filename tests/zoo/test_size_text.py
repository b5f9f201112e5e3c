"""Texts of sizes on both sides of every limit."""

from __future__ import annotations

import pytest

from costmodel.zoo.size_text import MOST_CHARACTERS, MOST_COMPARED, MOST_DEPTH, MOST_ROUNDED, MOST_TERMS, is_arithmetic


def sum_of(count: int) -> str:
    return f"Add({','.join(['s0'] * count)})"


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        pytest.param("s0" + " " * (MOST_CHARACTERS - 2), "s0" + " " * (MOST_CHARACTERS - 1), id="characters"),
        pytest.param("-" * (MOST_DEPTH - 1) + "s0", "-" * MOST_DEPTH + "s0", id="depth"),
        pytest.param(sum_of(MOST_TERMS), sum_of(MOST_TERMS + 1), id="terms of a sum"),
        pytest.param(f"{sum_of(40)} * {sum_of(25)}", f"{sum_of(40)} * {sum_of(26)}", id="terms of a product"),
        pytest.param("(s0 + s1)**9", "(s0 + s1)**10", id="terms of a power"),  # 512 and 1,024
        pytest.param("s0**16", "s0**17", id="exponent"),
        pytest.param("s0**-16", "s0**-17", id="negative exponent"),
        pytest.param("Pow(s0, Integer(16))", "Pow(s0, Integer(17))", id="exponent by name"),
        pytest.param("LShift(1, 16)", "LShift(1, 17)", id="shift"),
        pytest.param("9223372036854775808", "9223372036854775809", id="number"),
        pytest.param(
            f"Add({','.join(['floor(s0)'] * MOST_ROUNDED)})",
            f"Add({','.join(['floor(s0)'] * (MOST_ROUNDED + 1))})",
            id="functions",
        ),
        pytest.param(
            f"Max({', '.join(['s0'] * MOST_COMPARED)})",
            f"Max({', '.join(['s0'] * (MOST_COMPARED + 1))})",
            id="compared",
        ),
        pytest.param(
            "Max(s0, s1, s2, s3, s4, s5)*Min(s0, s1, s2, s3, s4, s5)",
            "Max(s0, s1, s2, s3, s4, s5)*Min(s0, s1, s2, s3, s4, s5, s6)",
            id="compared in two",
        ),
        pytest.param("abcd123456", "abcde1", id="letters of a symbol"),
        pytest.param("s123456", "s1234567", id="digits of a symbol"),
        pytest.param("Float('1.5', precision=64)", "Float('1.5', precision=65)", id="precision"),
        pytest.param("Float('1.5', precision=1)", "Float('1.5', precision=0)", id="least precision"),
        pytest.param("Symbol('s0', integer=True)", "Symbol('s0', integer=1)", id="assumption"),
        pytest.param("Integer('9999999999999999999')", "Integer('99999999999999999999')", id="digits of a text"),
    ],
)
def test_a_size_is_accepted_up_to_its_limit(inside: str, outside: str):
    assert is_arithmetic(inside)
    assert not is_arithmetic(outside)


@pytest.mark.parametrize(
    "text",
    ["s0", "-1", "+s0", "2*s0 + 1", "s0//2", "s0 % 3", "s0/2", "s0 - s1", "oo", "True", "1.5", "s0 < 4", "Eq(s0, 4)"],
)
def test_plain_arithmetic_is_accepted(text: str):
    assert is_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "s0;", "(s0", "s0 s1", "x", "S0", "s", "[s0]", "(s0, s1)", "s0.real", "s0[0]", "lambda: 1", "'s0'", "1j"),
        *("eval(s0)", "os.system(s0)", "f(s0)", "Max(*s0)", "Max(a=s0)", "floor(s0, evaluate=False)", "~s0", "not s0"),
        *("s0 and s1", "s0 if s1 else s2", "s0 | s1", "s0 << 2", "2**s0", "(s0**2)**2", "s0**(1 + 1)", "s0**floor(2)"),
        *("Symbol('x')", "Symbol(s0 + 1)", "Integer('0x10')", "None", "...", "b's0'"),
    ],
)
def test_anything_else_is_refused(text: str):
    assert not is_arithmetic(text)
