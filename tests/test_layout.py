"""Imports of the package go down the list in README, in which every module stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import costmodel

PACKAGE = Path(costmodel.__file__).parent
README = PACKAGE.parent / "README.md"
ABOVE = {"costmodel/__init__.py", "costmodel/__main__.py"}
"""What the package shows to others; it is loaded first, and imports on demand."""


def listed() -> dict[str, int]:
    """The line of each module or directory in README's list."""
    _, _, rest = README.read_text(encoding="utf-8").partition("    costmodel/ ")
    lines: dict[str, int] = {}
    for number, line in enumerate(rest.partition("    collectors/")[0].splitlines()[1:]):
        names = re.findall(r"\b(\w+(?:\.py|/))(?=[\s,:()]|$)", line)
        for name in names:
            assert name not in lines, f"{name} stands in README twice"
            lines[name] = number
    return lines


def place(path: Path, lines: dict[str, int]) -> int:
    """The line of a file of the package, its own or its directory's."""
    name = path.relative_to(PACKAGE).as_posix()
    found = lines.get(name, lines.get(f"{name.partition('/')[0]}/"))
    assert found is not None, f"{name} is missing in README's list"
    return found


def imported(path: Path) -> Iterator[Path]:
    """Files of the package that one imports as it is loaded."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "costmodel":
            for alias in node.names:
                yield from _file_of(f"{node.module}.{alias.name}".split(".")[1:])


def _file_of(parts: list[str]) -> Iterator[Path]:
    for last in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:last])
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                yield candidate
                return


def test_imports_go_down_the_list_in_readme():
    lines = listed()
    files = [path for path in PACKAGE.rglob("*.py") if f"costmodel/{path.relative_to(PACKAGE)}" not in ABOVE]
    imports = [(path, other) for path in files for other in imported(path)]
    assert len(imports) > 500
    upwards = [
        f"{path.relative_to(PACKAGE)} imports {other.relative_to(PACKAGE)}"
        for path, other in imports
        if place(other, lines) < place(path, lines)
    ]
    assert not upwards


def test_nothing_is_listed_that_is_not_there():
    assert [name for name in listed() if not (PACKAGE / name).exists()] == []
