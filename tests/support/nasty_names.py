"""Names that a model, a file or an error can have, of characters that mean something to what shows them."""

from __future__ import annotations

from hypothesis import strategies as st

ALPHABET = (
    "\x1b\x00\x07\x08\x7f\x85\x9b\t\r\n\v\f\x1c"  # control characters of C0 and C1, and what ends a line
    "\u202a\u202e\u2066\u2069\u200b\u200d\u2028\ufeff\xa0"  # writing direction, no width, separators
    "\ud800\udfff\ufffe\uffff\U000e0001"  # lone surrogates, no characters, a tag
    "<>&\"'|`*_[]()#\\~$!{}/;%^,=+-@.: "
    "ab0é字🙂"
)
"""Everything that a terminal, a spreadsheet, Markdown, HTML, XML, DOT or the graph's text form acts on."""
WHOLE = (
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "=cmd|'/c calc'!A1", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1"),
    *("</title><script>alert(1)</script>", "&lt;b&gt;", "&#27;", "]]>", "<!--", "-->", "a|b\\|c", "`x`", "**b**"),
    *(
        "[text](http://example.org)",
        "[bold]",
        "[/red]",
        "*/",
        "\\N",
        'a"];',
        "\N{FULLWIDTH EQUALS SIGN}1",
        "_",
        "\\x41",
    ),
)
"""Texts that are an attack as a whole."""


def nasty_names(max_size: int = 12) -> st.SearchStrategy[str]:
    """Names that are not empty."""
    return st.text(ALPHABET, min_size=1, max_size=max_size) | st.sampled_from(WHOLE)
