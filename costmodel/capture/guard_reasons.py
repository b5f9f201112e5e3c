"""Failed guards of Dynamo, which make it compile a function again, in the words of the code that they check."""

from __future__ import annotations

import re

_PREFIX = re.compile(r"^\d+/\d+: ")
_END = re.compile(r"\s{2,}#|\n")
_NAME = r"([\w.\[\]'\"]+)"
_FORMS = (
    (re.compile(rf"^len\({_NAME}\) (?:==|>=|!=) \d+$"), "the length of {} changes"),
    (re.compile(rf"^not {_NAME}$"), "the length of {} changes"),
    (re.compile(rf"^tensor {_NAME} (\w+) mismatch"), "the {1} of {0} changes"),
    (re.compile(rf"^___check_(?:obj|type)_id\({_NAME}, "), "{} is another object"),
    (re.compile(rf"^(?:not )?hasattr\({_NAME}, '(\w+)'\)"), "{0}.{1} is set or deleted"),
    (re.compile(rf"^(?:not )?___dict_contains\(.+, {_NAME}\)$"), "the keys of {} change"),
    (re.compile(rf"^{_NAME}(?: (?:==|is|!=|is not) .+)?$"), "{} changes"),
)
"""Forms of guards, and what fails them."""
_COMPUTED = re.compile(r"^___stack\d+$")
_SCOPES = (
    (re.compile(r"\._(?:modules|buffers|parameters)\['(\w+)'\]"), r".\1"),
    (re.compile(r"L\['(\w+)'\]"), r"\1"),
    (re.compile(r"G\['(\w+)'\]"), r"the global \1"),
)
_MOST_LETTERS = 80


def what_changes(guard: str) -> str:
    """Describe what fails a guard, such as `self.calls changes`.

    Args:
        guard: reason for a recompilation as Dynamo writes it, such as `0/1: self.calls == 1   # self.calls += 1`.
    """
    text = _END.split(_PREFIX.sub("", guard.strip()))[0].strip()
    for pattern, form in _FORMS:
        if found := pattern.match(text):
            return form.format(*map(_in_words, found.groups()))
    return f"the check {text[:_MOST_LETTERS]} fails" if text else "a check fails"


def _in_words(name: str) -> str:
    """Name of a checked object in the user's code."""
    name = name.strip("'")
    if _COMPUTED.match(name):
        return "a value from before a graph break"
    for pattern, written in _SCOPES:
        name = pattern.sub(written, name)
    return name
