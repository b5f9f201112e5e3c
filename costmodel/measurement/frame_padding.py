"""Python's own stack: what a caller's depth costs what it calls, and how to be rid of that.

CPython 3.11 to 3.13 keep frames in chunks of 16 KiB and give a chunk back to the system as soon as its first frame
returns (github.com/python/cpython/issues/142183). A function whose own frame ends just before a chunk does pays an
`mmap` and a `munmap` for every call that it makes: some 5 to 10 us instead of 0.05. Which function that is, is decided
by how deep the stack is below it: the same compiled model, called from one line or from another, issues its kernels in
3 or in 5 ms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

PADDING_SLOTS = 16_000
"""Slots of a frame, 8 bytes each. A chunk of 128 KiB cannot hold them with the 1,000 that CPython wants to spare, so
they get one of 256 KiB, and half of it is left."""

P = ParamSpec("P")
R = TypeVar("R")


def padded(function: Callable[P, R], slots: int) -> Callable[P, R]:
    """The function, called from a frame that takes so many slots of Python's stack."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_stacksize=slots)
    return functools.wraps(function)(call)


def with_frame_padding(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with some 130 KiB of one chunk of Python's stack for the frames of what it calls.

    Each call takes an `mmap` and a `munmap` itself, so it should be worth more than a few microseconds.
    """
    return padded(function, PADDING_SLOTS)
