"""Bars of text, an eighth of a cell exact in Unicode."""

from __future__ import annotations

_EIGHTHS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"


def bar(value: float, longest: float, width: int, unicode: bool) -> str:
    """A bar of at most `width` cells; one of a value above 0 has a mark at least.

    Args:
        value: length, at least 0.
        longest: value of a full bar.
        width: cells of a full bar.
        unicode: whether to draw in Unicode instead of ASCII.
    """
    if value <= 0 or longest <= 0:
        return ""
    share = min(1.0, value / longest)
    if not unicode:
        return "#" * max(1, round(share * width))
    whole, eighths = divmod(max(1, round(share * width * 8)), 8)
    return _EIGHTHS[8] * whole + (_EIGHTHS[eighths] if eighths else "")
