"""Names in the text form of a graph, escaped because modules, files and operators may have any name."""

from __future__ import annotations

import functools
import re

_SPECIAL = re.compile(r"""[\s,=()\[\]%#\\'"]""")
"""Characters that separate words of the text form or begin an escape."""
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(00(?:0[0-9a-f]|10)[0-9a-f]{4}))")


@functools.lru_cache(maxsize=1 << 14)
def written_name(name: str) -> str:
    r"""Escape a name as one printable word; `read_name` reverses it.

    Characters that separate words, and characters that `str.isprintable` rejects (control characters, changes of the
    writing direction, lone surrogates), are written as Python's escapes: `a\x20b`.
    """
    if name.isprintable() and not _SPECIAL.search(name):
        return name
    return "".join(_escape(char) if _SPECIAL.match(char) or not char.isprintable() else char for char in name)


def read_name(word: str) -> str:
    """Name that `written_name` escaped as this word."""
    return _ESCAPED.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), word) if "\\" in word else word


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
