"""Checks of the arguments of public functions, by one rule for each argument, before the function runs.

A rule is a function of a value. It returns None for a valid one, else a fault: words that follow the argument's name.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from costmodel.errors import CostmodelError, RequestError

P = ParamSpec("P")
R = TypeVar("R")
Rule = Callable[[Any], str | None]
LONGEST_VALUE = 60
"""Most characters of a value in a message."""


def checked(error: type[CostmodelError] = RequestError, **rules: Rule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that checks the arguments of a function before it runs.

    Args:
        error: class of the errors.
        rules: a rule for each argument but `self` and `cls`; defaults are not checked.

    Raises:
        TypeError: an argument has no rule, or a rule has no argument.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        if rules.keys() != signature.parameters.keys() - {"self", "cls"}:
            raise TypeError(f"{function.__qualname__} needs a rule for each argument")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, value in signature.bind(*args, **kwargs).arguments.items():
                if name in rules and (fault := rules[name](value)):
                    raise error(f"{name} {fault}")
            return function(*args, **kwargs)

        call.__dict__["rules"] = rules
        return call

    return decorated


def shown(value: object) -> str:
    """Short text for a value on one line; only the type for anything but text and numbers."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, (str, bytes, int, float)):
        text = repr(value) if not isinstance(value, int) or abs(value) < 10**LONGEST_VALUE else "an integer that large"
        return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
    return f"a value of type {type(value).__name__}"


def anything(_: object) -> None:
    """Rule that accepts any value."""


def must_be(wanted: str, holds: Callable[[Any], bool]) -> Rule:
    """Rule that a predicate holds."""
    return lambda value: None if holds(value) else f"must be {wanted}, not {shown(value)}"


def instance_of(kind: type, wanted: str) -> Rule:
    """Rule that a value is an instance of a class."""
    return must_be(wanted, lambda value: isinstance(value, kind))


def optional(rule: Rule) -> Rule:
    """Rule that also accepts None."""
    return lambda value: None if value is None else rule(value)


def one_of(choices: Collection[str]) -> Rule:
    """Rule that a value is one of several texts."""
    return must_be(f"one of {', '.join(choices)}", lambda value: isinstance(value, str) and value in choices)


def each(rule: Rule, wanted: str, at_least: int = 0) -> Rule:
    """Rule that a sequence has at least `at_least` items, all accepted by another rule."""

    def fault(value: object) -> str | None:
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
            return f"must be a sequence of {wanted}, not {shown(value)}"
        if len(value) < at_least:
            return f"must be a sequence of {wanted}, and is empty"
        return next((f"must be a sequence of {wanted}; {shown(item)} is not one" for item in value if rule(item)), None)

    return fault


def some_of(choices: Collection[str], at_least: int = 0) -> Rule:
    """Rule that a sequence has at least `at_least` items, all among several texts."""
    return each(one_of(choices), f"some of {', '.join(choices)}", at_least)


def named(rule: Rule, wanted: str) -> Rule:
    """Rule that a mapping has names as keys, and values accepted by another rule."""
    return must_be(
        wanted,
        lambda value: (
            isinstance(value, Mapping)
            and not any(not isinstance(name, str) or rule(item) for name, item in value.items())
        ),
    )


def _is_path(value: object) -> bool:
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    return isinstance(path, str) and path != "" and "\0" not in path


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


text = instance_of(str, "text")
"""Text; the function itself looks it up."""
flag = instance_of(bool, "True or False")
path = must_be("the path of a file", _is_path)
count = must_be("a whole number above 0", lambda value: _is_integer(value) and value > 0)
whole = must_be("a whole number", _is_integer)
"""A whole number; the function itself checks its range."""
positive = must_be("a number above 0", lambda value: _is_number(value) and value > 0)
"""A number above 0, which may be infinite."""
positive_finite = must_be("a finite number above 0", lambda value: _is_number(value) and 0 < value < math.inf)
profile_name = must_be("the name of a hardware profile", lambda value: isinstance(value, str) and value != "")
host = must_be(
    "the name of a host or its speed, such as 0.8",
    lambda value: (isinstance(value, str) and value != "") or (_is_number(value) and 0 < value < math.inf),
)
shape = each(count, "sizes above 0")
