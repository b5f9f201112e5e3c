"""docs/reference.md: the public Python API, made from signatures and docstrings.

python scripts/reference.py            write docs/reference.md
python scripts/reference.py --check    exit status 1 if it differs from the docstrings
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import costmodel

FILE = Path(__file__).parent.parent / "docs" / "reference.md"
HEAD = """# Python API

Made from the docstrings by `scripts/reference.py`. Everything here is an attribute of `costmodel`; each name is loaded
on its first use. [python.md](python.md) shows how it is used.
"""
SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$", re.MULTILINE)
TITLES = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Errors", "Returns": "Returns", "Yields": "Yields"}


def text() -> str:
    """Text of the reference."""
    names = sorted(name for name in dir(costmodel) if not name.startswith("_"))
    objects = {name: getattr(costmodel, name) for name in names}
    functions = [name for name in names if not inspect.isclass(objects[name])]
    classes = [name for name in names if inspect.isclass(objects[name])]
    parts = [HEAD, "## Functions\n", *(_entry(name, objects[name]) for name in functions)]
    return "\n".join([*parts, "## Classes\n", *(_class(name, objects[name]) for name in classes)])


def _entry(name: str, function: Any, level: int = 3) -> str:
    signature = _signature(function)
    return f"{'#' * level} {name}\n\n```python\n{name}{signature}\n```\n\n{markdown(inspect.getdoc(function) or '')}"


def _class(name: str, kind: type) -> str:
    parts = [f"### {name}\n", markdown(inspect.getdoc(kind) or "")]
    for attribute, value in _own(kind):
        parts.append(_member(name, attribute, value))
    return "\n".join(parts)


def _own(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class defines itself."""
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name, value in vars(kind).items():
        if (
            not name.startswith("_")
            and name not in fields
            and (callable(value) or isinstance(value, (property, classmethod)))
        ):
            yield name, value


def _member(owner: str, name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"#### {owner}.{name}\n\n{markdown(inspect.getdoc(value) or '')}"
    function = value.__func__ if isinstance(value, classmethod) else value
    return _entry(f"{owner}.{name}", function, 4)


def _signature(function: Any) -> str:
    """Signature, an argument a line if it is long; annotations as written."""
    signature = inspect.signature(function)
    shown = [item for key, item in signature.parameters.items() if key not in ("self", "cls")]
    keyword = next((place for place, item in enumerate(shown) if item.kind is item.KEYWORD_ONLY), len(shown))
    texts = list(map(_argument, shown))
    texts[keyword:keyword] = ["*"] if keyword < len(shown) else []
    end = "" if signature.return_annotation is signature.empty else f" -> {_annotation(signature.return_annotation)}"
    whole = f"({', '.join(texts)}){end}"
    return whole if len(whole) < 90 else "\n".join(["(", *(f"    {text}," for text in texts), f"){end}"])


def _argument(item: inspect.Parameter) -> str:
    text = item.name if item.annotation is item.empty else f"{item.name}: {_annotation(item.annotation)}"
    return text if item.default is item.empty else f"{text} = {item.default!r}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def markdown(docstring: str) -> str:
    """A docstring of Google's style as Markdown: its sections as lists."""
    first, *rest = SECTION.split(docstring.strip())
    parts = [f"{_paragraphs(first)}\n"]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        entries = re.split(r"^    (?=\S)", inspect.cleandoc("\n" + body) and body.strip("\n"), flags=re.MULTILINE)
        items = [" ".join(entry.split()) for entry in entries if entry.strip()]
        parts.append(f"**{TITLES[title]}**\n\n" + "\n".join(map(_item, items)) + "\n")
    return "\n".join(parts)


def _item(entry: str) -> str:
    name, colon, about = entry.partition(": ")
    names = ", ".join(f"`{one}`" for one in name.split(", "))
    return f"- {names}: {about}" if colon else f"- {entry}"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def main() -> int:
    """Write the reference, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if the file differs")
    if not parser.parse_args().check:
        FILE.write_text(text(), encoding="utf-8")
        return 0
    if FILE.read_text(encoding="utf-8") == text():
        return 0
    print(f"{FILE} differs from the docstrings; run scripts/reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
