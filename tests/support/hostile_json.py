"""Hostile values in place of those of a good record: shared by the tests of every reader of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from costmodel.errors import CostmodelError

DEEP = "[" * 100_000
LONG = "9" * 10_000
HOSTILE = (
    *("null", "true", "-1", "0", "1e-300", "1e9", "-1e9", "3e38", "1e308", "-1e308", "1e999", "NaN", "-Infinity"),
    *('""', '"x"', '"\\u001b[2J\\n"', '"\\ud800"', "[]", "[null]", "{}", '{"a": 1, "a": 2}', LONG, f"{LONG}.5", DEEP),
)
"""JSON, or nearly, in place of a value."""
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)


def leaves(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of JSON lie, containers among them."""
    yield place
    if isinstance(data, (dict, list)):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(value, (*place, key))


def text_with(data: Any, place: tuple[Any, ...], hostile: str) -> str:
    """JSON with something hostile in place of one of its values."""
    whole = json.loads(json.dumps([data]))
    at = whole
    for key in (0, *place)[:-1]:
        at = at[key]
    at[(0, *place)[-1]] = "the hole"
    return json.dumps(whole[0]).replace('"the hole"', hostile)


def mutated(data: Any) -> st.SearchStrategy[str]:
    places = list(leaves(data))
    return st.builds(text_with, st.just(data), st.sampled_from(places), st.sampled_from(HOSTILE))


def refused_or(act: Callable[[], Any], error: type[CostmodelError]) -> Any:
    """The result, or None if the reader's own error says in one short line why there is none."""
    try:
        return act()
    except error as refusal:
        said = str(refusal)
    assert "\n" not in said
    assert len(said) < 600
    return None
