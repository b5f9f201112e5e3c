"""Names and messages made safe for what shows them: modules, files, operators and errors may be called anything.

Every renderer escapes at the last moment, so that records keep names as they are. All functions but `csv_cell` may be
applied to their own result of `terminal`, which is the common first step.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#&~$])")
_FORMULA = "=+-@"
"""Characters that begin a formula in a spreadsheet."""


def terminal(text: str) -> str:
    r"""Text on one line with nothing that a terminal acts on: `\x1b` in place of an escape character.

    Everything that `str.isprintable` rejects is written as Python's escape: control characters, line ends, changes of
    the writing direction, characters of no width, lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def csv_cell(value: object) -> object:
    """A cell that no spreadsheet runs: text that begins like a formula gets a single quote before it.

    Text is escaped as for a terminal; numbers and None stay as they are.
    """
    if not isinstance(value, str):
        return value
    text = terminal(value)
    first = unicodedata.normalize("NFKC", text.lstrip()[:1])  # some take a full-width equals sign for one
    return f"'{text}" if first and first in _FORMULA else text


def markdown(text: str) -> str:
    """Text on one line in which nothing is Markdown or HTML."""
    return _MARKDOWN.sub(r"\\\1", terminal(text))


def markup(text: str) -> str:
    """Text between tags or in an attribute of HTML or XML; XML 1.0 forbids most control characters even as entities."""
    return escape(terminal(text))


def dot(*lines: str) -> str:
    """A string of Graphviz's DOT language, of several lines; Graphviz reads HTML's entities in it."""
    escaped = (terminal(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def unicode_text(text: str) -> str:
    """Text without lone surrogates, which strict readers of JSON refuse."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
