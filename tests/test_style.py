"""Docstrings begin with a noun or a verb, those of constants and attributes included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string that stands alone: at the head of a definition or below a constant."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


@pytest.mark.parametrize("directory", ["costmodel", "collectors", "scripts", "tests"])
def test_no_docstring_begins_with_what(directory: str):
    begun = [
        f"{path.relative_to(ROOT)}:{line}: {text.partition(' ')[0]}"
        for path in (ROOT / directory).rglob("*.py")
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if text.startswith("What")
    ]
    assert not begun


def test_docstrings_of_modules_functions_and_constants_are_found():
    text = '"""One."""\nX = 1\n"""What two."""\ndef f():\n    """Three."""\n    return "four"\n'
    assert dict(docstrings(text)) == {1: "One.", 3: "What two.", 5: "Three."}
