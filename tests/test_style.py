"""Docstrings begin with a noun or a verb, those of constants and attributes included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
QUESTION = re.compile(r'^ *r?"""\s*What\w*\b', re.MULTILINE)
"""Begin of a docstring that asks instead of naming."""


@pytest.mark.parametrize("directory", ["costmodel", "collectors", "scripts", "tests"])
def test_no_docstring_begins_with_what(directory: str):
    begun = [
        f"{path.relative_to(ROOT)}: {found.group().strip()}"
        for path in (ROOT / directory).rglob("*.py")
        for found in QUESTION.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not begun


@pytest.mark.parametrize(
    "form", ['"""{}What it is."""', 'X = 1\n"""{}Whatever it holds."""', 'def f():\n    r"""{}What."""']
)
@pytest.mark.parametrize(("before", "is_found"), [("", True), ("\n    ", True), ("Text of w", False)])
def test_such_docstrings_are_found(form: str, before: str, is_found: bool):
    assert bool(QUESTION.search(form.format(before))) == is_found
