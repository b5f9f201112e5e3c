"""Escapes for names and messages of any content: modules, files, operators and errors may have any name.

Renderers escape when they write, so that records keep names unchanged. `terminal` is the first step of every escape.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape

_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#&~$])")
_FORMULA = "=+-@"
"""First characters of a formula in a spreadsheet."""


def terminal(text: str) -> str:
    r"""Escape text to one line that a terminal only displays: `\x1b` for an escape character.

    Characters that `str.isprintable` rejects become Python's escapes: control characters, line ends, changes of the
    writing direction, characters of no width, lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def csv_cell(value: object) -> object:
    """Escape a cell so that no spreadsheet evaluates it: a single quote precedes text that begins like a formula.

    Text is escaped as for a terminal; numbers and None stay unchanged.
    """
    if not isinstance(value, str):
        return value
    text = terminal(value)
    first = unicodedata.normalize("NFKC", text.lstrip()[:1])  # some spreadsheets accept a full-width equals sign
    return f"'{text}" if first and first in _FORMULA else text


def markdown(text: str) -> str:
    """Escape text to one line without Markdown or HTML syntax."""
    return _MARKDOWN.sub(r"\\\1", terminal(text))


def markup(text: str) -> str:
    """Escape text for HTML and XML, which forbids most control characters even as entities."""
    return escape(terminal(text))


def dot(*lines: str) -> str:
    """Escape lines to one string of Graphviz's DOT language, in which Graphviz decodes HTML entities."""
    escaped = (terminal(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines)
    return '"' + "\\n".join(escaped) + '"'


def unicode_text(text: str) -> str:
    """Escape lone surrogates, which strict readers of JSON refuse."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
